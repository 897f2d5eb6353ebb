#include "hostrt_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

using hostrt_copies = hostrt;
using bytes = std::vector<std::byte>;

bytes pattern(std::size_t count) {
  bytes made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = static_cast<std::byte>((i * 7) + 1);
  return made;
}

TEST_F(hostrt_copies, ranges_beyond_an_allocation_are_refused) {
  bytes own(200);
  auto* const on_device = device(100);
  auto* const on_host = pinned(100);
  EXPECT_EQ(cudaMemcpy(on_device, own.data(), 101, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(on_device + 50, own.data(), 51, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(on_device, on_host + 1, 100, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(on_device, own.data(), SIZE_MAX, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(on_device, 0, 101), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(own.data(), 0, 1), cudaErrorInvalidValue);
}

TEST_F(hostrt_copies, a_small_pageable_memcpy_may_return_before_arrival) {
  auto const source = pattern(1000);
  auto* const target = device(1000);
  model_link({0, 1e5}, {0, 0});
  ASSERT_EQ(cudaMemcpy(target, source.data(), 1000, cudaMemcpyHostToDevice), cudaSuccess);
  std::this_thread::sleep_for(20ms);    // so that it has begun on most machines
  lose_device(cudaErrorLaunchFailure);  // else it would arrive only after a day
  reset();
  model_link({0, 0.2}, {0, 0});
  auto const begun = now_s();
  ASSERT_EQ(cudaMemcpy(target, source.data(), 1000, cudaMemcpyHostToDevice), cudaSuccess);
  bytes back(1000);
  ASSERT_EQ(cudaMemcpy(back.data(), target, 1000, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_GE(now_s() - begun, 0.2);
  EXPECT_EQ(back, source);
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
