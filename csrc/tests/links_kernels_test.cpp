#include "links/kernels.hpp"

#include "cuda/device.hpp"
#include "fork_support.hpp"
#include "links_support.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <optional>
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
    auto const* const arrived = reinterpret_cast<std::uint32_t const*>(target.address());
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

class links_kernels_chase : public links_kernels {
 protected:
  void SetUp() override {
    links_kernels::SetUp();
    ends_.emplace();
    on_.emplace(0);
    first_ = ends_->chase(1).source;
  }
  void TearDown() override {
    on_.reset();
    ends_.reset();
    links_kernels::TearDown();
  }

  chase_result chase(std::uint32_t hops, int multiprocessor = -1) {
    device_guard const guard{0};
    host_buffer const words{sizeof(chase_result), memory_kind::pinned, 0};
    std::memset(reinterpret_cast<void*>(words.address()), 0, sizeof(chase_result));
    ends_->with.chase(first_, words.address(), hops, multiprocessor, on_->view());
    EXPECT_EQ(cudaStreamSynchronize(on_->handle()), cudaSuccess);
    return *reinterpret_cast<chase_result const*>(words.address());
  }
  std::atomic<std::uint64_t>& pointer(std::uint64_t address) {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(address);
  }

  std::optional<link_ends> ends_;
  std::optional<stream> on_;
  std::uint64_t first_{};
};

TEST_F(links_kernels_chase, follow_as_many_pointers_as_wanted) {
  auto at = first_;
  for (std::uint32_t hops = 1; hops <= 5; ++hops) {
    at = pointer(at);
    EXPECT_EQ(chase(hops).last, at);
  }
  EXPECT_EQ(chase(item / 64).last, first_);  // the whole cycle
}

TEST_F(links_kernels_chase, run_on_the_wanted_multiprocessor) {
  for (auto const each : {0, 1, 3}) {
    auto const there = chase(2, each);
    EXPECT_EQ(there.multiprocessor, each);
    EXPECT_EQ(there.ran, 1U);
  }
  EXPECT_EQ(chase(2).ran, 1U);
  EXPECT_EQ(chase(2).multiprocessor, 0);
  EXPECT_EQ(chase(2, 4).ran, 0U);
}

/// Four instructions of a nanosecond a hop on the host runtime, and its clock has 2 GHz.
TEST_F(links_kernels_chase, measure_from_the_first_load_until_its_pointer_has_arrived) {
  auto const few = chase(10);
  auto const many = chase(1010);
  EXPECT_EQ(many.nanoseconds - few.nanoseconds, 4 * 1000);
  EXPECT_EQ(few.cycles, 2 * (few.nanoseconds - 2));
  EXPECT_EQ(many.cycles, 2 * (many.nanoseconds - 2));
  EXPECT_LT(few.nanoseconds, 4 * 10 + 6);
}

TEST_F(links_kernels_chase, write_nothing_at_the_end_of_a_chain) {
  pointer(first_) = 0;
  EXPECT_EQ(chase(1).ran, 0U);
}

/// From the first place in two or in three hops back to it.
TEST_F(links_kernels_chase, load_each_pointer_from_memory) {
  auto const place = [&](std::uint64_t number) { return first_ + 64 * number; };
  for (auto const& [from, to] : {std::array{1, 0}, {2, 3}, {3, 0}, {0, 1}}) {
    pointer(place(static_cast<std::uint64_t>(from))) = place(static_cast<std::uint64_t>(to));
  }
  std::atomic<bool> over{false};
  std::thread other{[&] {
    for (std::uint64_t i = 1; !over; ++i) { pointer(first_) = place(1 + i % 2); }
  }};
  auto changed = false;
  rounds all{500};  // each longer, until both threads have run in one of them
  while (!changed && all.another()) {
    changed = chase(6000 * static_cast<std::uint32_t>(all.begun())).last != first_;
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
