#include <algorithm>

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

TEST_F(hostrt_copies, contents_make_the_round_trip) {
  for (auto const count : {std::size_t{1}, std::size_t{64} << 10U, mib + 3}) {
    auto const source = pattern(count);
    bytes back(count);
    auto* const on_device = device(count);
    ASSERT_EQ(cudaMemcpy(on_device, source.data(), count, cudaMemcpyHostToDevice), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(back.data(), on_device, count, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(back, source) << count;
  }
}

TEST_F(hostrt_copies, the_default_kind_is_inferred) {
  auto const source = pattern(100);
  bytes back(100);
  auto* const first = device(100);
  auto* const second = device(100);
  ASSERT_EQ(cudaMemcpy(first, source.data(), 100, cudaMemcpyDefault), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(second, first, 100, cudaMemcpyDefault), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(back.data(), second, 100, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(back, source);
}

TEST_F(hostrt_copies, a_kind_that_contradicts_the_pointers_is_refused) {
  bytes own(100);
  auto* const on_device = device(100);
  EXPECT_EQ(cudaMemcpy(own.data(), on_device, 100, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(on_device, own.data(), 100, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(own.data(), pinned(100), 100, cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(on_device, own.data(), 100, static_cast<cudaMemcpyKind>(7)),
            cudaErrorInvalidMemcpyDirection);
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

TEST_F(hostrt_copies, a_pinned_copy_behind_a_gate_returns_at_once) {
  auto* const s = stream();
  auto* const source = pinned(mib);
  auto* const target = device(mib);
  source[0] = std::byte{1};
  gate closed;
  ASSERT_EQ(closed.close(s), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(target, source, mib, cudaMemcpyHostToDevice, s), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(s), cudaErrorNotReady);
  source[0] = std::byte{2};
  closed.open();
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  std::byte arrived{};
  ASSERT_EQ(cudaMemcpy(&arrived, target, 1, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(arrived, std::byte{2});
}

TEST_F(hostrt_copies, a_pageable_copy_behind_a_gate_blocks_the_host) {
  auto* const s = stream();
  bytes own(2 * mib);
  auto* const target = device(own.size());
  for (auto const upload : {true, false}) {
    gate closed;
    ASSERT_EQ(closed.close(s), cudaSuccess);
    auto copying = std::async(std::launch::async, [&] {
      return upload ? cudaMemcpyAsync(target, own.data(), own.size(), cudaMemcpyHostToDevice, s)
                    : cudaMemcpyAsync(own.data(), target, own.size(), cudaMemcpyDeviceToHost, s);
    });
    EXPECT_EQ(copying.wait_for(30ms), std::future_status::timeout) << upload;
    closed.open();
    EXPECT_EQ(copying.get(), cudaSuccess);
    EXPECT_EQ(cudaStreamQuery(s), cudaSuccess);
  }
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

TEST_F(hostrt_copies, a_pageable_memcpy_waits_for_the_legacy_stream) {
  bytes own(100);
  auto* const target = device(100);
  gate closed;
  ASSERT_EQ(closed.close(nullptr), cudaSuccess);
  auto copying = std::async(std::launch::async, [&] {
    return cudaMemcpy(target, own.data(), own.size(), cudaMemcpyHostToDevice);
  });
  EXPECT_EQ(copying.wait_for(30ms), std::future_status::timeout);
  closed.open();
  EXPECT_EQ(copying.get(), cudaSuccess);
}

TEST_F(hostrt_copies, a_pinned_memcpy_blocks_until_it_is_done) {
  model_link({0, 0.05}, {0, 0});
  auto const begun = now_s();
  ASSERT_EQ(cudaMemcpy(device(8), pinned(8), 8, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_GE(now_s() - begun, 0.05);
}

TEST_F(hostrt_copies, memset_sets_device_memory) {
  bytes back(1000);
  auto* const target = device(1000);
  ASSERT_EQ(cudaMemset(target, 0x5a, 1000), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(back.data(), target, 1000, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(back, bytes(1000, std::byte{0x5a}));
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
