#include "hostrt_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

using hostrt_events = hostrt;

TEST_F(hostrt_events, a_wait_is_for_the_record_at_the_time_of_the_call) {
  auto* const first = stream();
  auto* const second = stream();
  auto* const done = event();
  gate closed;
  ASSERT_EQ(record(done, first), CUDA_SUCCESS);
  ASSERT_EQ(cudaStreamWaitEvent(second, done, 0), cudaSuccess);
  ASSERT_EQ(closed.close(first), cudaSuccess);
  ASSERT_EQ(record(done, first), CUDA_SUCCESS);
  EXPECT_EQ(cudaStreamSynchronize(second), cudaSuccess);
  EXPECT_EQ(driver("cuEventQuery", done), CUDA_ERROR_NOT_READY);
}

TEST_F(hostrt_events, destroying_a_pending_event_is_safe) {
  auto* const s = stream();
  auto* const doomed = make_event();
  gate closed;
  ASSERT_EQ(closed.close(s), cudaSuccess);
  ASSERT_EQ(record(doomed, s), CUDA_SUCCESS);
  ASSERT_EQ(driver("cuEventDestroy", doomed), CUDA_SUCCESS);
  closed.open();
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
}

TEST_F(hostrt_events, an_event_that_stalls_is_not_ready_on_an_idle_stream) {
  auto* const stalled = event();
  stall("cuEventRecord", 1, 60);
  ASSERT_EQ(record(stalled, stream()), CUDA_SUCCESS);
  EXPECT_EQ(driver("cuEventQuery", stalled), CUDA_ERROR_NOT_READY);
  release_stalls();
  EXPECT_EQ(driver("cuEventSynchronize", stalled), CUDA_SUCCESS);
}

TEST_F(hostrt_events, an_event_of_an_idle_legacy_stream_waits_for_blocking_streams) {
  auto* const recorded = event();
  gate closed;
  ASSERT_EQ(closed.close(stream(cudaStreamDefault)), cudaSuccess);
  ASSERT_EQ(record(recorded, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(driver("cuEventQuery", recorded), CUDA_ERROR_NOT_READY);
  closed.open();
  EXPECT_EQ(driver("cuEventSynchronize", recorded), CUDA_SUCCESS);
}

TEST_F(hostrt_events, the_default_streams_need_a_context) {
  auto* const made = event();
  auto const without_context = [&](cudaStream_t stream) {
    EXPECT_EQ(record(made, stream), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(driver("cuStreamWaitEvent", static_cast<CUstream>(stream), made, 0U),
              CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(driver("cuStreamQuery", static_cast<CUstream>(stream)), CUDA_ERROR_INVALID_CONTEXT);
  };
  for (auto* const handle : {cudaStream_t{nullptr}, cudaStreamLegacy, cudaStreamPerThread}) {
    std::thread{without_context, handle}.join();
  }
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
