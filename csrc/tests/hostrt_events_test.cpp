#include "hostrt_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

using hostrt_events = hostrt;

TEST_F(hostrt_events, elapsed_time_is_that_between_two_records) {
  auto* const s = stream();
  auto* const start = event();
  auto* const end = event();
  ASSERT_EQ(record(start, s), CUDA_SUCCESS);
  ASSERT_EQ(cudaLaunchHostFunc(
                s, [](void* /*unused*/) { std::this_thread::sleep_for(30ms); }, nullptr),
            cudaSuccess);
  ASSERT_EQ(record(end, s), CUDA_SUCCESS);
  ASSERT_EQ(driver("cuEventSynchronize", end), CUDA_SUCCESS);
  float ms = 0;
  ASSERT_EQ(elapsed(ms, start, end), CUDA_SUCCESS);
  EXPECT_GE(ms, 30.0F);
}

TEST_F(hostrt_events, an_unrecorded_event_is_done_but_has_no_time) {
  auto* const start = event();
  auto* const end = event();
  float ms = 0;
  EXPECT_EQ(driver("cuEventQuery", start), CUDA_SUCCESS);
  EXPECT_EQ(driver("cuEventSynchronize", start), CUDA_SUCCESS);
  EXPECT_EQ(elapsed(ms, start, end), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(hostrt_events, an_event_without_timing_has_no_time) {
  auto* const s = stream();
  auto* const start = event(CU_EVENT_DISABLE_TIMING);
  auto* const end = event();
  ASSERT_EQ(record(start, s), CUDA_SUCCESS);
  ASSERT_EQ(record(end, s), CUDA_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  float ms = 0;
  EXPECT_EQ(elapsed(ms, start, end), CUDA_ERROR_INVALID_HANDLE);
}

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

TEST_F(hostrt_events, waiting_for_an_unrecorded_event_does_nothing) {
  auto* const s = stream();
  ASSERT_EQ(driver("cuStreamWaitEvent", s, event(), 0U), CUDA_SUCCESS);
  EXPECT_EQ(driver("cuStreamSynchronize", s), CUDA_SUCCESS);
  EXPECT_EQ(driver("cuStreamQuery", s), CUDA_SUCCESS);
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

TEST_F(hostrt_events, unknown_handles_are_refused) {
  auto* const unknown = reinterpret_cast<CUevent>(0x54321);
  float ms = 0;
  EXPECT_EQ(record(unknown, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(record(event(), reinterpret_cast<cudaStream_t>(0x54321)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver("cuEventQuery", unknown), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver("cuEventSynchronize", unknown), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver("cuEventDestroy", unknown), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(elapsed(ms, unknown, unknown), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cudaStreamWaitEvent(nullptr, unknown, 0), cudaErrorInvalidResourceHandle);
}

TEST_F(hostrt_events, wrong_flags_are_refused) {
  CUevent made = nullptr;
  EXPECT_EQ(driver("cuEventCreate", &made, 0x80U), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver("cuEventCreate", &made, static_cast<unsigned int>(CU_EVENT_INTERPROCESS)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cudaStreamWaitEvent(nullptr, event(), 2), cudaErrorInvalidValue);
}

TEST_F(hostrt_events, an_event_needs_a_context) {
  ASSERT_EQ(driver("cuCtxSetCurrent", static_cast<CUcontext>(nullptr)), CUDA_SUCCESS);
  CUevent made = nullptr;
  EXPECT_EQ(driver("cuEventCreate", &made, 0U), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(hostrt_events, an_event_on_an_idle_stream_is_ready_at_once) {
  for (auto* const s : {stream(), stream(cudaStreamDefault), cudaStream_t{nullptr}}) {
    auto* const passed = event();
    ASSERT_EQ(record(passed, s), CUDA_SUCCESS);
    EXPECT_EQ(driver("cuEventQuery", passed), CUDA_SUCCESS);
  }
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
