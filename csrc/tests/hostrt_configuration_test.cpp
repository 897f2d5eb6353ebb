#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "hostrt/control.hpp"
#include "hostrt_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

using hostrt_configuration = hostrt;

TEST_F(hostrt_configuration, one_line_holds_several_orders) {
  configure("fail=cudaPeekAtLastError:2:4;devices=3;lose=cudaDeviceSynchronize:1:719;");
  int count = 0;
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorCudartUnloading);
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 3);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
}

TEST_F(hostrt_configuration, links_and_stalls_take_decimal_numbers) {
  configure("devices=2;link=1e9:0:2.5e9:0;link-of=1:1e9:0.05:1e9:0");
  configure("stall=cudaDeviceSynchronize:1:0.05");
  auto begun = now_s();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_GE(now_s() - begun, 0.05);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  begun = now_s();
  ASSERT_EQ(cudaMemcpy(device(8), pinned(8), 8, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_GE(now_s() - begun, 0.05);
}

TEST_F(hostrt_configuration, a_mistake_is_refused) {
  for (auto const* line :
       {"fial=cudaMalloc:1:2", "fail", "fail=cudaMalloc:1", "fail=cudaMallok:1:2", "devices=two",
        "devices=17", "stall=cudaMalloc:1:-2", "link-of=16:1:0:1:0", "link=nan:0:0:0"}) {
    EXPECT_THROW(configure(line), std::invalid_argument) << line;
  }
}

/// Runs in its own process, in which this variable is set before the first call.
[[noreturn]] void exit_with_first_code(char const* line, int calls) {
  setenv("PYXFER_HOSTRT", line, 1);
  auto code = cudaSuccess;
  for (int i = 0; i < calls; ++i) code = cudaDeviceSynchronize();
  std::fflush(stderr);
  std::_Exit(code % 256);
}

// Not the usual fixture, which makes calls before the variable is set.
class hostrt_environment : public ::testing::Test {
 protected:
  void SetUp() override { ::testing::GTEST_FLAG(death_test_style) = "threadsafe"; }
};

TEST_F(hostrt_environment, the_variable_is_read_at_the_first_call) {
  EXPECT_EXIT(exit_with_first_code("fail=cudaDeviceSynchronize:2:100", 2),
              ::testing::ExitedWithCode(cudaErrorNoDevice), "");
}

TEST_F(hostrt_environment, a_stuck_stream_does_not_hold_up_the_exit) {
  auto const exit_with_closed_gate = [] {
    gate closed;
    std::exit(closed.close(cudaStreamPerThread) == cudaSuccess ? 3 : 4);
  };
  EXPECT_EXIT(exit_with_closed_gate(), ::testing::ExitedWithCode(3), "");
}

TEST_F(hostrt_environment, a_mistake_makes_every_call_fail_and_is_reported_once) {
  EXPECT_EXIT(exit_with_first_code("nonsense", 2), ::testing::ExitedWithCode(cudaErrorInvalidValue),
              "^PYXFER_HOSTRT cannot be read, so every CUDA call will fail: 'nonsense': [^\n]*\n$");
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
