#include "cuda/device.hpp"

#include "cuda/bracket.hpp"
#include "cuda/memory.hpp"
#include "engine_support.hpp"

#include <future>

namespace pyxfer::tests {
namespace {

/// A capture of another library on its own stream. It must be valid at the end of every test.
class beside_a_capture : public engine_test {
 protected:
  void SetUp() override {
    engine_test::SetUp();
    captured_.emplace(0);
    hostrt::begin_capture(handle(), "global");
  }

  void TearDown() override {
    EXPECT_EQ(hostrt::end_capture(handle()), 0);
    captured_.reset();
    engine_test::TearDown();
  }

  [[nodiscard]] stream_view captured() const { return captured_->view(); }
  [[nodiscard]] std::uintptr_t handle() const {
    return reinterpret_cast<std::uintptr_t>(captured_->handle());
  }

 private:
  std::optional<stream> captured_;
};

template <typename Action>
void in_another_thread(Action const& action) {
  std::async(std::launch::async, action).get();
}

TEST_F(beside_a_capture, memory_is_made_and_released) {
  in_another_thread([] {
    device_buffer const on_device{64, 0};
    host_buffer const pinned{64, memory_kind::pinned, 0};
    host_buffer pageable{64, memory_kind::pageable, 0};
    registration const locked{pageable.address(), pageable.size(), 0};
  });
}

TEST_F(beside_a_capture, events_are_queried_under_a_context) {
  in_another_thread([] {
    stream on{0};
    event marked{0};
    context_guard const guard{primary_context(0)};
    marked.record(on.view());
    while (!marked.passed()) { std::this_thread::yield(); }
  });
}

TEST_F(beside_a_capture, a_bracket_on_another_stream_is_timed) {
  in_another_thread([] {
    stream on{0};
    bracket both_ends{0, on.view()};
    both_ends.begin();
    both_ends.end();
    EXPECT_TRUE(both_ends.ended_within(10));
    EXPECT_GE(both_ends.elapsed_s(), 0);
  });
}

TEST_F(beside_a_capture, a_relaxed_thread_queries_events) {
  event const marked{0};
  in_another_thread([&] {
    relax_captures_in_this_thread();
    EXPECT_TRUE(marked.passed());
  });
}

TEST_F(beside_a_capture, a_bracket_refuses_the_captured_stream) {
  bracket begun{0, captured()};
  EXPECT_THROW(begun.begin(), std::invalid_argument);
  EXPECT_THROW(begun.end(), std::invalid_argument);
}

TEST_F(beside_a_capture, the_captured_stream_is_known) {
  stream const other{0};
  EXPECT_TRUE(is_capturing(captured()));
  EXPECT_FALSE(is_capturing(other.view()));
  EXPECT_THROW(require_no_capture(captured()), std::invalid_argument);
  EXPECT_NO_THROW(require_no_capture(other.view()));
}

using capture_test = engine_test;

CUstreamCaptureMode current_mode() {
  auto mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  EXPECT_EQ(driver().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  auto const found = mode;
  EXPECT_EQ(driver().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  return found;
}

TEST_F(capture_test, a_relaxation_ends_with_its_scope) {
  auto const before = current_mode();
  {
    capture_relaxation const relaxed;
    EXPECT_EQ(current_mode(), CU_STREAM_CAPTURE_MODE_RELAXED);
  }
  EXPECT_EQ(current_mode(), before);
}

TEST_F(capture_test, an_invalid_capture_is_a_capture) {
  stream const on{0};
  auto const handle = reinterpret_cast<std::uintptr_t>(on.handle());
  hostrt::begin_capture(handle, "relaxed");
  EXPECT_NE(cudaStreamQuery(on.handle()), cudaSuccess);
  static_cast<void>(cudaGetLastError());
  EXPECT_TRUE(is_capturing(on.view()));
  EXPECT_EQ(hostrt::end_capture(handle), cudaErrorStreamCaptureInvalidated);
}

TEST_F(capture_test, the_legacy_stream_is_captured_with_a_blocking_one) {
  device_guard const guard{0};
  cudaStream_t blocking = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&blocking, cudaStreamDefault), cudaSuccess);
  auto const handle = reinterpret_cast<std::uintptr_t>(blocking);
  EXPECT_FALSE(is_capturing(stream_view{nullptr}));
  hostrt::begin_capture(handle, "global");
  EXPECT_TRUE(is_capturing(stream_view{nullptr}));
  EXPECT_EQ(hostrt::end_capture(handle), 0);
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

}  // namespace
}  // namespace pyxfer::tests
