#include "links/kernels.hpp"

#include "cuda/device.hpp"
#include "fork_support.hpp"
#include "links/kernel_text.hpp"
#include "links_support.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>

namespace pyxfer::tests {
namespace {

using links_kernels = links_test;

TEST_F(links_kernels, copy_whole_words) {
  kernels const with{1};
  device_guard const guard{1};
  stream const on{1};
  // Fewer words than threads, and each thread some rounds of four and up to three single ones.
  constexpr std::size_t threads = std::size_t{4} * 512;
  for (auto const words : {std::size_t{1}, threads - 1, 4 * threads, 9 * threads + 5}) {
    auto const bytes = words * kernels::word_bytes;
    host_buffer const source{bytes + 64, memory_kind::pinned, 1};
    device_buffer const target{bytes + 64, 1};
    auto* const sent = reinterpret_cast<std::uint32_t*>(source.address());
    auto const* const arrived = reinterpret_cast<std::uint32_t const*>(inside(target.address()));
    std::iota(sent, sent + source.size() / sizeof *sent, 1U);
    ASSERT_EQ(cudaMemset(reinterpret_cast<void*>(target.address()), 0, bytes + 64), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    with.copy(target.address() + 32, source.address() + 16, bytes, on.view());
    ASSERT_EQ(cudaStreamSynchronize(on.handle()), cudaSuccess);
    EXPECT_EQ(std::memcmp(arrived + 8, sent + 4, bytes), 0) << words;
    EXPECT_EQ(std::count(arrived, arrived + 8, 0U), 8) << words;
    EXPECT_EQ(std::count(arrived + 8 + bytes / 4, arrived + 16 + bytes / 4, 0U), 8) << words;
  }
}

/// What a thread of the kernel that computes writes.
float computed(unsigned int thread, unsigned int rounds) {
  std::array<float, 8> x{};
  auto before = static_cast<float>(thread % 65536) / 65536;
  for (auto& each : x) { before = each = before - 0.125F; }
  for (auto& each : x) {
    for (auto left = 2 * rounds; left > 0; --left) { each = std::fma(each, each, -1.9F); }
  }
  return std::accumulate(x.begin() + 1, x.end(), x[0]);
}

TEST_F(links_kernels, compute_a_number_of_each_thread_by_its_rounds) {
  EXPECT_EQ(computed(0, 1), 3.70910072F);
  link_ends ends;
  device_guard const guard{0};
  stream const on{0};
  constexpr std::size_t bytes = 3 * kernels::results_bytes;
  auto const* const found = reinterpret_cast<float const*>(inside(ends.memory.address()));
  auto const untouched = found[bytes / sizeof(float)];
  for (auto const rounds : {1U, 2U, 50U}) {
    ends.with.compute(ends.memory.address(), bytes, rounds, on.view());
    ASSERT_EQ(cudaStreamSynchronize(on.handle()), cudaSuccess);
    for (unsigned int thread = 0; thread < bytes / sizeof(float); ++thread) {
      ASSERT_EQ(found[thread], computed(thread, rounds)) << thread << " " << rounds;
      ASSERT_LT(std::fabs(found[thread]), 8 * 1.9F);
    }
    EXPECT_EQ(found[bytes / sizeof(float)], untouched);
  }
}

TEST_F(links_kernels, are_for_every_device_and_driver) {
  EXPECT_EQ(std::string{kernel_text}.rfind(".version 6.0\n.target sm_50\n", 0), 0U);
}

/// Chases through page-locked memory.
struct chasing {
  chase_result run(std::uint32_t hops, int multiprocessor = -1) {
    auto* const words = reinterpret_cast<void*>(result.address());
    std::memset(words, 0, sizeof(chase_result));
    ends.with.chase(first, result.address(), hops, multiprocessor, on.view());
    EXPECT_EQ(cudaStreamSynchronize(on.handle()), cudaSuccess);
    return *static_cast<chase_result const*>(words);
  }
  static std::atomic<std::uint64_t>& pointer(std::uint64_t address) {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(address);
  }

  link_ends ends;
  device_guard guard{0};
  stream on{0};
  host_buffer result{sizeof(chase_result), memory_kind::pinned, 0};
  std::uint64_t first{ends.chase(1).source};
};

/// On the host runtime an instruction takes a nanosecond, which is two cycles, and a hop has four.
TEST_F(links_kernels, chase_and_time_as_many_pointers_as_wanted) {
  chasing chase;
  auto at = chase.first;
  for (std::uint32_t hops = 1; hops <= item / 64; ++hops) {
    at = chase.pointer(at);
    if (hops > 3 && hops < item / 64) { continue; }
    auto const found = chase.run(hops);
    EXPECT_EQ(found.last, at);
    EXPECT_EQ(found.cycles, 2 * (4 * hops + 3));
    EXPECT_EQ(found.nanoseconds, 4 * hops + 5);
  }
  chase.pointer(chase.first) = 0;
  EXPECT_EQ(chase.run(1).ran, 0U);
}

TEST_F(links_kernels, chase_on_the_wanted_multiprocessor) {
  chasing chase;
  for (auto const each : {-1, 0, 1, 3}) {
    auto const there = chase.run(2, each);
    EXPECT_EQ(there.multiprocessor, std::max(each, 0));
    EXPECT_EQ(there.ran, 1U);
  }
  EXPECT_EQ(chase.run(2, 4).ran, 0U);
}

TEST_F(links_kernels, chase_through_memory_as_it_is) {
  chasing chase;
  // From the first place in two or in three hops back to it.
  auto const place = [&](std::uint64_t number) { return chase.first + 64 * number; };
  chase.pointer(place(1)) = place(0);
  chase.pointer(place(2)) = place(3);
  chase.pointer(place(3)) = place(0);
  std::atomic<bool> over{false};
  std::thread other{[&] {
    for (std::uint64_t i = 0; !over; ++i) { chase.pointer(chase.first) = place(1 + i % 2); }
  }};
  while (chase.pointer(chase.first) > place(2)) { std::this_thread::yield(); }
  auto changed = false;
  rounds all{500};  // each longer, until both threads have run in one of them
  while (!changed && all.another()) {
    changed = chase.run(6000 * static_cast<std::uint32_t>(all.begun())).last != chase.first;
  }
  over = true;
  other.join();
  EXPECT_TRUE(changed);
}

TEST_F(links_kernels, hold_a_stream_until_the_flag_is_set_or_the_time_is_over) {
  kernels const with{0};
  device_guard const guard{0};
  stream const on{0};
  host_buffer const words{128, memory_kind::pinned, 0};
  auto& flag = *reinterpret_cast<std::atomic<std::uint32_t>*>(words.address());
  auto& late = *reinterpret_cast<std::atomic<std::uint32_t>*>(words.address() + 64);
  auto const hold = [&](double limit_s) {
    flag = 0;
    late = 0;
    with.hold(words.address(), words.address() + 64, limit_s, on.view());
  };
  hold(60);
  std::this_thread::sleep_for(std::chrono::milliseconds{20});  // it looks at the flag in that time
  EXPECT_EQ(cudaStreamQuery(on.handle()), cudaErrorNotReady);
  flag = 2;
  EXPECT_EQ(cudaStreamSynchronize(on.handle()), cudaSuccess);
  EXPECT_EQ(late, 0U);
  auto const begun = now_s();
  hold(0.01);
  EXPECT_EQ(cudaStreamSynchronize(on.handle()), cudaSuccess);
  EXPECT_GE(now_s() - begun, 0.01);
  EXPECT_EQ(late, 1U);
}

TEST_F(links_kernels, are_unavailable_if_the_driver_does_not_make_them) {
  for (auto const code :
       {cudaErrorInvalidKernelImage, cudaErrorNoKernelImageForDevice, cudaErrorInvalidPtx,
        cudaErrorJitCompilerNotFound, cudaErrorUnsupportedPtxVersion,
        cudaErrorJitCompilationDisabled, cudaErrorInvalidSource}) {
    hostrt::fail("cuModuleLoadData", 1, code);
    EXPECT_THROW(kernels{0}, kernels_unavailable_error) << code;
  }
}

TEST_F(links_kernels, report_every_failure_and_leave_nothing) {
  expect_every_failure_reported([] { kernels const made{0}; });
  expect_every_failure_reported([] { kernels{0}.close(); });
}

TEST_F(links_kernels, are_left_loaded_after_abandon_and_in_a_forked_child) {
  kernels made{0};
  EXPECT_EQ(in_forked_child([&] {
              made.close();
              return std::to_string(count_of("cuModuleUnload"));
            }),
            "0");
  kernels other{0};
  other.close();
  EXPECT_TRUE(other.closed());
  other.abandon();
  EXPECT_EQ(count_of("cuModuleUnload"), 1);
}

}  // namespace
}  // namespace pyxfer::tests
