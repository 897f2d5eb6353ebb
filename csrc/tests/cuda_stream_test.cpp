#include "cuda/stream.hpp"

#include "copy/gate.hpp"
#include "engine_support.hpp"

#include <utility>

namespace pyxfer::tests {
namespace {

using cuda_stream = engine_test;

TEST_F(cuda_stream, is_released_once) {
  {
    stream first{0};
    stream const second{std::move(first)};
    EXPECT_EQ(made().size(), 1U);
  }
  EXPECT_EQ(count_of("cudaStreamDestroy"), 1);
  EXPECT_TRUE(made().empty());
}

TEST_F(cuda_stream, keeps_its_handle_and_device_when_moved) {
  hostrt::set_device_count(2);
  stream first{1};
  auto* const handle = first.handle();
  stream const second{std::move(first)};
  EXPECT_EQ(second.handle(), handle);
  EXPECT_EQ(second.view().handle(), handle);
  EXPECT_EQ(second.device(), 1);
}

TEST_F(cuda_stream, closes_once) {
  stream made{0};
  made.close();
  made.close();
  EXPECT_EQ(count_of("cudaStreamDestroy"), 1);
}

TEST_F(cuda_stream, reports_that_it_cannot_be_closed_and_drops_its_handle) {
  stream made{0};
  hostrt::fail("cudaStreamDestroy", 1, cudaErrorNotSupported);
  EXPECT_THROW(made.close(), cuda_error);
  EXPECT_TRUE(cuda_stream::made().empty());
}

TEST_F(cuda_stream, notes_that_it_cannot_be_destroyed) {
  hostrt::fail("cudaStreamDestroy", 1, cudaErrorNotSupported);
  { stream const made{0}; }
  auto const notes = take_cleanup_failures();
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes.front().rfind("cudaStreamDestroy failed with cudaErrorNotSupported (801)", 0), 0U)
      << notes.front();
}

TEST_F(cuda_stream, reports_every_failure_and_leaves_nothing) {
  expect_every_failure_reported([] { stream const made{0}; });
  expect_every_failure_reported([] { stream{0}.close(); });
}

TEST_F(cuda_stream, notes_a_lost_device_and_closes) {
  {
    stream const made{0};
    hostrt::lose_device(cudaErrorLaunchFailure);
  }
  EXPECT_FALSE(take_cleanup_failures().empty());
  EXPECT_TRUE(made().empty());
}

TEST_F(cuda_stream, makes_no_call_after_abandon) {
  CUstream handle = nullptr;
  {
    stream made{0};
    handle = made.handle();
    made.abandon();
  }
  EXPECT_EQ(count_of("cudaStreamDestroy"), 0);
  EXPECT_EQ(cudaStreamDestroy(handle), cudaSuccess);
}

TEST_F(cuda_stream, never_waits_for_the_legacy_default_stream) {
  stream const own{0};
  gate const held{stream_view{nullptr}, 60};
  ASSERT_EQ(cudaMemsetAsync(nullptr, 0, 0, own.handle()), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(own.handle()), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
}

TEST_F(cuda_stream, does_not_change_the_callers_context) {
  hostrt::set_device_count(2);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  { stream const made{0}; }
  int current = -1;
  ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 1);
}

}  // namespace
}  // namespace pyxfer::tests
