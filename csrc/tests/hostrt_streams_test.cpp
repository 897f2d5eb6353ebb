#include <array>
#include <future>

#include "hostrt_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

using hostrt_streams = hostrt;

TEST_F(hostrt_streams, a_query_that_is_not_ready_is_the_last_error_once) {
  auto* const s = stream();
  gate closed;
  ASSERT_EQ(closed.close(s), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(s), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(hostrt_streams, the_legacy_stream_waits_for_blocking_streams) {
  auto* const blocking = stream(cudaStreamDefault);
  gate closed;
  ASSERT_EQ(closed.close(blocking), cudaSuccess);
  auto* const target = device(64);
  ASSERT_EQ(cudaMemsetAsync(target, 1, 64, nullptr), cudaSuccess);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
  closed.open();
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
}

TEST_F(hostrt_streams, blocking_streams_wait_for_the_legacy_stream) {
  auto* const blocking = stream(cudaStreamDefault);
  gate closed;
  ASSERT_EQ(closed.close(cudaStreamLegacy), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(device(64), 1, 64, blocking), cudaSuccess);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(cudaStreamQuery(blocking), cudaErrorNotReady);
  closed.open();
  EXPECT_EQ(cudaStreamSynchronize(blocking), cudaSuccess);
}

TEST_F(hostrt_streams, every_thread_has_its_own_default_stream) {
  gate closed;
  ASSERT_EQ(closed.close(cudaStreamPerThread), cudaSuccess);
  std::thread{[] { EXPECT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess); }}.join();
  EXPECT_EQ(cudaStreamQuery(cudaStreamPerThread), cudaErrorNotReady);
  closed.open();
  EXPECT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
}

TEST_F(hostrt_streams, work_of_a_destroyed_stream_is_still_done) {
  cudaStream_t s = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), cudaSuccess);
  gate closed;
  ASSERT_EQ(closed.close(s), cudaSuccess);
  auto* const target = pinned(64);
  ASSERT_EQ(cudaMemsetAsync(target, 7, 64, s), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(s), cudaSuccess);
  closed.open();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(target[63], std::byte{7});
}

TEST_F(hostrt_streams, calls_inside_a_host_function_are_not_permitted) {
  auto* const s = stream();
  static cudaError_t inside;
  auto const call = [](void* /*unused*/) { inside = cudaDeviceSynchronize(); };
  ASSERT_EQ(cudaLaunchHostFunc(s, call, nullptr), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_EQ(inside, cudaErrorNotPermitted);
}

TEST_F(hostrt_streams, a_full_queue_makes_the_call_wait) {
  auto* const s = stream();
  auto* const marked = event();
  gate closed;
  ASSERT_EQ(closed.close(s), cudaSuccess);
  for (int queued = 1; queued < 1024; ++queued) ASSERT_EQ(record(marked, s), CUDA_SUCCESS);
  auto one_more = std::async(std::launch::async, [&] { return record(marked, s); });
  EXPECT_EQ(one_more.wait_for(30ms), std::future_status::timeout);
  closed.open();
  EXPECT_EQ(one_more.get(), CUDA_SUCCESS);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
}

TEST_F(hostrt_streams, losing_the_device_ends_the_wait_for_a_full_queue) {
  auto* const s = stream();
  auto* const target = device(8);
  gate closed;
  ASSERT_EQ(closed.close(s), cudaSuccess);
  auto const queue_one = [&] { return cudaMemsetAsync(target, 0, 8, s); };
  for (int queued = 1; queued < 1024; ++queued) ASSERT_EQ(queue_one(), cudaSuccess);
  auto one_more = std::async(std::launch::async, queue_one);
  lose_device(cudaErrorLaunchFailure);
  EXPECT_EQ(one_more.wait_for(60s), std::future_status::ready);
}

TEST_F(hostrt_streams, of_one_connection_wait_for_earlier_work_that_cannot_begin) {
  set_connections(1);
  auto* const held = stream();
  auto* const other = stream();
  auto* const target = device(64);
  gate closed;
  ASSERT_EQ(closed.close(held), cudaSuccess);  // it has begun, and so holds up nothing
  ASSERT_EQ(cudaMemcpyAsync(target, pinned(64), 64, cudaMemcpyHostToDevice, other), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(device(64), pinned(64), 64, cudaMemcpyHostToDevice, held), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(pinned(64), target, 64, cudaMemcpyDeviceToHost, other), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(target, 0, 64, other), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);  // other engines have other queues
  ASSERT_EQ(cudaMemcpyAsync(target, pinned(64), 64, cudaMemcpyHostToDevice, other), cudaSuccess);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(cudaStreamQuery(other), cudaErrorNotReady);
  closed.open();
  EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
}

TEST_F(hostrt_streams, of_several_connections_share_them_in_turn) {
  configure("connections=2");
  std::array<cudaStream_t, 3> made{stream(), stream(), stream()};
  gate closed;
  ASSERT_EQ(closed.close(made[0]), cudaSuccess);
  for (auto* const on : made) ASSERT_EQ(cudaMemsetAsync(device(64), 0, 64, on), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(made[1]), cudaSuccess);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(cudaStreamQuery(made[2]), cudaErrorNotReady);
  lose_device(cudaErrorLaunchFailure);
  EXPECT_EQ(cudaStreamSynchronize(made[2]), cudaErrorLaunchFailure);
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
