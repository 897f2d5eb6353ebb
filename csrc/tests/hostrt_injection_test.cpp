#include <atomic>
#include <stdexcept>

#include "hostrt_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

using hostrt_injection = hostrt;

void nothing(void* /*unused*/) {}

TEST_F(hostrt_injection, the_nth_call_fails_once) {
  auto* const s = stream();
  fail("cudaStreamSynchronize", 2, cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(hostrt_injection, a_failed_call_does_nothing) {
  fail("cudaMalloc", 1, cudaErrorMemoryAllocation);
  void* made = nullptr;
  EXPECT_EQ(cudaMalloc(&made, 10), cudaErrorMemoryAllocation);
  EXPECT_TRUE(hostrt::made().empty());
}

TEST_F(hostrt_injection, driver_calls_fail_by_their_names) {
  auto* const e = event();
  fail("cuEventRecord", 1, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(record(e, nullptr), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_EQ(record(e, nullptr), CUDA_SUCCESS);
}

TEST_F(hostrt_injection, a_failed_release_still_releases) {
  void* made = nullptr;
  cudaStream_t s = nullptr;
  ASSERT_EQ(cudaMalloc(&made, 10), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&s, 0), cudaSuccess);
  auto* const e = make_event();
  fail("cudaFree", 1, cudaErrorLaunchFailure);
  fail("cudaStreamDestroy", 1, cudaErrorLaunchFailure);
  fail("cuEventDestroy", 1, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(cudaFree(made), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaStreamDestroy(s), cudaErrorLaunchFailure);
  EXPECT_EQ(driver("cuEventDestroy", e), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_TRUE(hostrt::made().empty());
}

TEST_F(hostrt_injection, a_lost_device_stays_lost) {
  auto* const s = stream();
  fail_sticky("cudaStreamQuery", 1, cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamQuery(s), cudaErrorIllegalAddress);
  void* made = nullptr;
  EXPECT_EQ(cudaMalloc(&made, 10), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
}

TEST_F(hostrt_injection, a_lost_device_still_releases_and_has_error_texts) {
  void* made = nullptr;
  void* host = nullptr;
  std::byte own{};
  ASSERT_EQ(cudaMalloc(&made, 10), cudaSuccess);
  ASSERT_EQ(cudaHostAlloc(&host, 10, 0), cudaSuccess);
  ASSERT_EQ(cudaHostRegister(&own, 1, 0), cudaSuccess);
  lose_device(cudaErrorLaunchFailure);
  EXPECT_EQ(cudaFree(made), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaFreeHost(host), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaHostUnregister(&own), cudaErrorLaunchFailure);
  EXPECT_TRUE(hostrt::made().empty());
  int version = 0;
  EXPECT_EQ(cudaRuntimeGetVersion(&version), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorLaunchFailure), "cudaErrorLaunchFailure");
}

TEST_F(hostrt_injection, losing_the_device_ends_every_wait) {
  auto* const s = stream();
  gate closed;
  ASSERT_EQ(closed.close(s), cudaSuccess);
  auto waiting = std::async(std::launch::async, [s] { return cudaStreamSynchronize(s); });
  EXPECT_EQ(waiting.wait_for(20ms), std::future_status::timeout);
  lose_device(cudaErrorECCUncorrectable);
  EXPECT_EQ(waiting.get(), cudaErrorECCUncorrectable);
}

TEST_F(hostrt_injection, one_device_is_lost_alone) {
  set_device_count(2);
  auto* const lost = stream();
  auto* const lost_event = event();
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  auto* const other = stream();
  lose_one_device(0, cudaErrorLaunchFailure);
  EXPECT_EQ(cudaStreamQuery(other), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(lost), cudaErrorLaunchFailure);
  EXPECT_EQ(driver("cuEventQuery", lost_event), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(cudaSetDevice(0), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // of device 1, which is still current
  EXPECT_THROW(lose_one_device(-1, cudaErrorLaunchFailure), std::invalid_argument);
}

TEST_F(hostrt_injection, a_call_loses_the_device_that_is_current) {
  set_device_count(2);
  fail_sticky("cudaDeviceSynchronize", 1, cudaErrorLaunchFailure);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(hostrt_injection, one_device_hangs_alone) {
  set_device_count(2);
  auto* const hanging = stream();
  auto* const event = hostrt::event();
  auto* const target = device(8);
  hang_device(0);
  ASSERT_EQ(driver("cuEventRecord", event, hanging), CUDA_SUCCESS);
  EXPECT_EQ(driver("cuEventQuery", event), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  void* others = nullptr;
  ASSERT_EQ(cudaMalloc(&others, 8), cudaSuccess);
  EXPECT_EQ(cudaMemset(others, 1, 8), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  // Each of these waits for its own device only.
  EXPECT_EQ(cudaFree(others), cudaSuccess);
  EXPECT_EQ(cudaHostAlloc(&others, 8, 0), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(others), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(&others, 8, 0), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(&others), cudaSuccess);
  auto freeing = std::async(std::launch::async, [target] { return cudaFree(target); });
  EXPECT_EQ(freeing.wait_for(20ms), std::future_status::timeout);
  release_stalls();
  EXPECT_EQ(freeing.get(), cudaSuccess);
  EXPECT_EQ(driver("cuEventSynchronize", event), CUDA_SUCCESS);
}

TEST_F(hostrt_injection, work_queued_before_a_loss_is_never_done) {
  auto* const s = stream();
  auto* const target = pinned(8);
  target[0] = std::byte{1};
  static std::atomic<bool> called;
  called = false;
  gate closed;
  ASSERT_EQ(closed.close(s), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(target, 2, 8, s), cudaSuccess);
  ASSERT_EQ(cudaLaunchHostFunc(s, [](void* /*unused*/) { called = true; }, nullptr), cudaSuccess);
  lose_device(cudaErrorLaunchFailure);
  reset();
  closed.open();
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(target[0], std::byte{1});
  EXPECT_FALSE(called);
}

TEST_F(hostrt_injection, losing_the_device_ends_a_pageable_copy_behind_a_gate) {
  auto* const s = stream();
  auto* const target = device(2 * mib);
  gate closed;
  ASSERT_EQ(closed.close(s), cudaSuccess);
  auto copying = std::async(std::launch::async, [&] {
    std::vector<std::byte> own(2 * mib);
    return cudaMemcpyAsync(target, own.data(), own.size(), cudaMemcpyHostToDevice, s);
  });
  EXPECT_EQ(copying.wait_for(20ms), std::future_status::timeout);
  lose_device(cudaErrorLaunchFailure);
  EXPECT_EQ(copying.get(), cudaErrorLaunchFailure);
}

TEST_F(hostrt_injection, a_stalled_asynchronous_call_is_late_on_its_stream) {
  auto* const s = stream();
  auto* const source = pinned(8);
  auto* const target = device(8);
  stall("cudaMemcpyAsync", 1, 1000);
  ASSERT_EQ(cudaMemcpyAsync(target, source, 8, cudaMemcpyDefault, s), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(s), cudaErrorNotReady);
  release_stalls();
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  stall("cudaMemcpyAsync", 1, 0.1);
  auto const begun = now_s();
  ASSERT_EQ(cudaMemcpyAsync(target, source, 8, cudaMemcpyDefault, s), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_GE(now_s() - begun, 0.1);
}

TEST_F(hostrt_injection, host_functions_records_and_waits_stall_on_their_streams) {
  auto* const e = event();
  auto* const s = stream();
  ASSERT_EQ(record(e, s), CUDA_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  for (auto const* call : {"cudaLaunchHostFunc", "cuEventRecord", "cudaStreamWaitEvent"}) {
    stall(call, 1, 0.05);
    auto const begun = now_s();
    ASSERT_EQ(cudaLaunchHostFunc(s, nothing, nullptr), cudaSuccess);
    ASSERT_EQ(record(e, s), CUDA_SUCCESS);
    ASSERT_EQ(cudaStreamWaitEvent(s, e, 0), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
    EXPECT_GE(now_s() - begun, 0.05) << call;
  }
}

TEST_F(hostrt_injection, modelled_calls_of_one_device_take_their_time_one_after_the_other) {
  set_device_count(2);
  model_call("cudaDeviceEnablePeerAccess", 0.02);
  model_call("cuModuleLoadData", 0.02);
  auto const begun = now_s();
  auto loading = std::async(std::launch::async, [] {
    CUmodule made = nullptr;
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    return driver("cuModuleLoadData", &made, static_cast<void const*>(nullptr));
  });
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
  EXPECT_EQ(loading.get(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_GE(now_s() - begun, 0.04);
}

TEST_F(hostrt_injection, released_stalls_do_not_wait_for_their_calls) {
  stall("cudaMemGetInfo", 1, 1000);
  release_stalls();
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
}

TEST_F(hostrt_injection, calls_are_counted) {
  (void)cudaPeekAtLastError();
  (void)cudaPeekAtLastError();
  (void)record(event(), nullptr);
  auto const made = calls();
  EXPECT_EQ(made.at("cudaPeekAtLastError"), 2);
  EXPECT_EQ(made.at("cuEventRecord"), 1);
  EXPECT_EQ(made.count("cudaMemcpy"), 0U);
  reset();
  EXPECT_TRUE(calls().empty());
}

TEST_F(hostrt_injection, orders_that_could_never_take_effect_are_refused) {
  EXPECT_THROW(fail("cudaMallok", 1, 2), std::invalid_argument);
  EXPECT_THROW(fail("cudaMalloc", 0, 2), std::invalid_argument);
  EXPECT_THROW(fail("cudaMalloc", 1, 0), std::invalid_argument);
  EXPECT_THROW(stall("cudaMallok", 1, 1), std::invalid_argument);
  EXPECT_THROW(set_missing("cuNothing", true), std::invalid_argument);
  EXPECT_THROW(set_device_count(17), std::invalid_argument);
  EXPECT_THROW(lose_device(-1), std::invalid_argument);
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
