#include "ring/staging.hpp"

#include "cuda/device.hpp"
#include "cuda/stream.hpp"
#include "cuda/wait.hpp"
#include "ring_trouble_support.hpp"

namespace pyxfer::tests {
namespace {

using ring_staging = ring_trouble;

/// Also of the chunk mover's calls, and of the threads that start.
TEST_F(ring_staging, reports_every_failure_and_leaves_nothing) {
  expect_every_failure_reported([this] {
    ring made{0, settings};
    use(made);
    made.close();
  });
}

TEST_F(ring_staging, continues_after_every_failure) {
  ring made{0, settings};
  expect_usable_after_every_failure(made, 4, [&] { use(made); });
}

TEST_F(ring_staging, has_ended_its_copies_when_it_throws) {
  ring made{0, settings};
  hostrt::stall("cudaMemcpyAsync", 1, 60);
  hostrt::fail("cudaMemcpyAsync", 2, cudaErrorNotSupported);
  std::thread releasing{[] {
    await_calls("cudaMemcpyAsync", 2);
    await_calls("cuEventQuery", count_of("cuEventQuery") + 20);
    hostrt::release_stalls();
  }};
  EXPECT_THROW(upload(made), cuda_error);
  EXPECT_TRUE(has_arrived(chunk));
  releasing.join();
  expect_usable(made);
}

TEST_F(ring_staging, waits_only_briefly_for_its_copies_when_it_is_cancelled) {
  ring made{0, settings};
  hostrt::stall("cudaMemcpyAsync", 1, 60);
  hostrt::fail("cudaMemcpyAsync", 2, cudaErrorNotSupported);
  canceller cancelling{made, 2};
  EXPECT_THROW(upload(made), cuda_error);
  EXPECT_LT(cancelling.join(), soon_s);
  EXPECT_FALSE(take_cleanup_failures().empty());
  hostrt::release_stalls();
  expect_usable(made);
}

TEST_F(ring_staging, ends_on_a_stuck_device_when_it_is_interrupted) {
  ring made{0, settings};
  hostrt::stall("cudaMemcpyAsync", 1, 60);
  auto const interrupted = [] { return count_of("cudaMemcpyAsync") > 0; };
  EXPECT_THROW(
      static_cast<void>(made.upload(source().view(), device(), std::nullopt, true, interrupted)),
      cancelled_error);
  EXPECT_FALSE(take_cleanup_failures().empty());
  hostrt::release_stalls();
  expect_usable(made);
}

/// Of twelve slots of a mebibyte an upload cycles through eight. A download waits for it, because
/// it cycles through all.
TEST_F(ring_staging, throws_if_it_is_cancelled_before_its_first_chunk) {
  constexpr std::size_t mib = std::size_t{1} << 20U;
  device_buffer const there{3 * mib, 0};
  array const sent{mib};
  array const back{3 * mib, 2};
  stream const own{0};
  ring made{0, {1, mib, 12, fill_kind::streaming, 0}};
  hostrt::stall("cudaMemcpyAsync", 1, 60);
  static_cast<void>(made.upload(sent.view(), there.address(), own.view(), false));
  std::thread cancelling{[&] {
    await_calls("cuEventQuery", count_of("cuEventQuery") + 20);
    made.cancel();
  }};
  EXPECT_THROW(static_cast<void>(made.download(there.address(), back.view(), std::nullopt)),
               cancelled_error);
  cancelling.join();
  hostrt::release_stalls();
}

TEST_F(ring_staging, refuses_a_stream_that_is_captured_and_leaves_the_capture_valid) {
  ring made{0, settings};
  stream const own{0};
  array const target{size, 2};
  for (auto const mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                          cudaStreamCaptureModeRelaxed}) {
    ASSERT_EQ(cudaStreamBeginCapture(own.handle(), mode), cudaSuccess);
    EXPECT_THROW(static_cast<void>(made.upload(source().view(), device(), own.view(), false)),
                 std::invalid_argument);
    EXPECT_THROW(static_cast<void>(made.download(device(), target.view(), own.view())),
                 std::invalid_argument);
    EXPECT_THROW(static_cast<void>(made.start_upload(source().view(), device(), own.view())),
                 std::invalid_argument);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(own.handle(), &graph), cudaSuccess);
  }
  expect_usable(made);
}

/// One thread captures like torch.cuda.graph while another uploads.
TEST_F(ring_staging, works_beside_a_capture_and_leaves_it_valid) {
  stream const captured{0};
  for (auto const mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                          cudaStreamCaptureModeRelaxed}) {
    ASSERT_EQ(cudaStreamBeginCapture(captured.handle(), mode), cudaSuccess);
    {
      ring made{0, settings};
      use(made);
      std::thread other{[&] { use(made); }};
      other.join();
      made.close();
    }
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(captured.handle(), &graph), cudaSuccess);
  }
  EXPECT_TRUE(has_arrived());
}

TEST_F(ring_staging, reports_a_target_that_is_not_device_memory) {
  ring made{0, settings};
  device_buffer const little{chunk, 0};
  // After its end the host runtime has no device memory.
  EXPECT_THROW(
      static_cast<void>(made.upload(source().view(), little.address() + 1, std::nullopt, true)),
      cuda_error);
  expect_usable(made);
}

TEST_F(ring_staging, ends_when_the_device_is_lost) {
  for (auto const* const call : {"cudaMemcpyAsync", "cuEventRecord", "cuEventQuery"}) {
    SCOPED_TRACE(call);
    {
      ring made{0, settings};
      hostrt::reset();
      hostrt::fail_sticky(call, 3, cudaErrorLaunchFailure);
      EXPECT_THROW(upload(made), device_lost_error);
      EXPECT_THROW(upload(made), device_lost_error);
      EXPECT_THROW(made.close(), device_lost_error);
    }
    EXPECT_FALSE(take_cleanup_failures().empty());
    hostrt::reset();
    EXPECT_EQ(made().size(), 1U);  // the memory of this test
  }
}

TEST_F(ring_staging, ends_when_the_device_is_lost_while_it_waits) {
  {
    ring made{0, settings};
    hostrt::stall("cudaMemcpyAsync", 1, 60);
    auto const started = start_upload(made);
    std::thread losing{[] {
      await_calls("cudaMemcpyAsync", 1);
      hostrt::lose_device(cudaErrorIllegalAddress);
    }};
    EXPECT_THROW(upload(made), device_lost_error);
    EXPECT_THROW(static_cast<void>(started.result(60)), device_lost_error);
    losing.join();
  }
  EXPECT_FALSE(take_cleanup_failures().empty());
}

TEST_F(ring_staging, ends_on_a_slow_link_when_it_is_cancelled) {
  array const much{4000 * chunk};
  device_buffer const room{4000 * chunk, 0};
  ring made{0, settings};
  auto const transfers = {
      std::function<void()>{
          [&] { static_cast<void>(made.upload(much.view(), room.address(), std::nullopt, true)); }},
      std::function<void()>{
          [&] { static_cast<void>(made.download(room.address(), much.view(), std::nullopt)); }},
      std::function<void()>{[&] {
        auto const started = made.start_upload(much.view(), room.address(), std::nullopt);
        static_cast<void>(started.result(60));
      }},
  };
  for (auto const& transfer : transfers) {
    hostrt::reset();
    hostrt::model_link({0, 0.02}, {0, 0.02});  // 80 s in total
    canceller cancelling{made, 8};
    auto const text = text_of<cancelled_error>(transfer);
    EXPECT_LT(cancelling.join(), soon_s);
    EXPECT_EQ(text.rfind("cancelled during a", 0), 0U) << text;
    hostrt::model_link({0, 0}, {0, 0});
    expect_usable(made);
  }
  static_cast<void>(take_cleanup_failures());
}

TEST_F(ring_staging, ends_all_transfers_on_a_stuck_device_when_they_are_cancelled) {
  ring made{0, settings};
  hostrt::stall("cudaMemcpyAsync", 1, 60);
  auto const first = start_upload(made);
  auto const second = start_upload(made);
  await_calls("cudaMemcpyAsync", 1);
  auto const begun = now_s();
  made.cancel();
  for (auto const& waiting : {first, second}) {
    EXPECT_THROW(static_cast<void>(waiting.result(60)), cancelled_error);
  }
  EXPECT_LT(now_s() - begun, soon_s);
  auto const notes = take_cleanup_failures();
  EXPECT_EQ(notes.size(), 1U);
  hostrt::release_stalls();
  expect_usable(made);
}

TEST_F(ring_staging, orders_the_callers_stream_after_the_copies_of_a_cancelled_upload) {
  stream const own{0};
  event reached{0};
  ring made{0, settings};
  hostrt::stall("cudaMemcpyAsync", 1, 60);
  canceller cancelling{made, 1};
  EXPECT_THROW(static_cast<void>(made.upload(source().view(), device(), own.view(), true)),
               cancelled_error);
  EXPECT_LT(cancelling.join(), soon_s);
  reached.record(own.view());
  EXPECT_FALSE(reached.passed());
  hostrt::release_stalls();
  EXPECT_TRUE(wait_for(reached, 60));
}

}  // namespace
}  // namespace pyxfer::tests
