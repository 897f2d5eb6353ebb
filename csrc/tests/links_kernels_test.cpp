#include "links/kernels.hpp"

#include "cuda/device.hpp"
#include "fork_support.hpp"
#include "links_support.hpp"

namespace pyxfer::tests {
namespace {

using links_kernels = links_test;

chase_result& result_in(host_buffer const& words) {
  return *reinterpret_cast<chase_result*>(words.address());
}

TEST_F(links_kernels, copy_whole_words) {
  link_ends const ends{1};
  device_guard const guard{1};
  stream const on{1};
  ends.with.copy(ends.memory.address(), ends.host.address(), item - 16, on.view());
  ASSERT_EQ(cudaStreamSynchronize(on.handle()), cudaSuccess);
  auto const* const arrived = inside(ends.memory.address());
  EXPECT_EQ(std::count(arrived, arrived + item, 1), static_cast<std::ptrdiff_t>(item - 16));
  EXPECT_EQ(arrived[item - 16], 2);
}

TEST_F(links_kernels, chase_on_the_wanted_multiprocessor) {
  link_ends const ends;
  device_guard const guard{0};
  stream const on{0};
  host_buffer const words{sizeof(chase_result), memory_kind::pinned, 0};
  auto const plan = ends.chase(1);
  auto const chase = [&](std::uint32_t hops, int multiprocessor) {
    result_in(words) = {};
    ends.with.chase(plan.source, words.address(), hops, multiprocessor, on.view());
    EXPECT_EQ(cudaStreamSynchronize(on.handle()), cudaSuccess);
    return result_in(words);
  };
  auto const second = *reinterpret_cast<std::uint64_t const*>(plan.source);
  EXPECT_EQ(chase(1, -1).last, second);
  auto const there = chase(item / 64, 3);
  EXPECT_EQ(there.last, plan.source);  // the whole cycle
  EXPECT_EQ(there.multiprocessor, 3);
  EXPECT_EQ(there.ran, 1U);
  EXPECT_GT(there.nanoseconds, 0);
  EXPECT_EQ(chase(1, 4).ran, 0U);
}

TEST_F(links_kernels, hold_a_stream_until_the_flag_is_set_or_the_time_is_over) {
  link_ends const ends;
  device_guard const guard{0};
  stream const on{0};
  host_buffer const words{128, memory_kind::pinned, 0};
  auto& flag = *reinterpret_cast<std::atomic<std::uint32_t>*>(words.address());
  auto& late = *reinterpret_cast<std::atomic<std::uint32_t>*>(words.address() + 64);
  auto const hold = [&](double limit_s) {
    flag = 0;
    late = 0;
    ends.with.hold(words.address(), words.address() + 64, limit_s, on.view());
  };
  hold(60);
  EXPECT_EQ(cudaStreamQuery(on.handle()), cudaErrorNotReady);
  flag = 1;
  EXPECT_EQ(cudaStreamSynchronize(on.handle()), cudaSuccess);
  EXPECT_EQ(late, 0U);
  hold(0.01);
  EXPECT_EQ(cudaStreamSynchronize(on.handle()), cudaSuccess);
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
