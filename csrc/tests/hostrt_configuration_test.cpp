#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "hostrt/control.hpp"
#include "hostrt_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

using hostrt_configuration = hostrt;

std::string refusal_of(std::string const& line) {
  try {
    configure(line);
  } catch (std::invalid_argument const& problem) { return problem.what(); }
  return "none";
}

TEST_F(hostrt_configuration, one_line_holds_several_orders) {
  configure("fail=cudaPeekAtLastError:2:4;missing=cudaMemGetInfo;devices=3;");
  int count = 0;
  std::size_t free = 0;
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorCudartUnloading);
  EXPECT_EQ(cudaMemGetInfo(&free, &free), cudaErrorCallRequiresNewerDriver);
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 3);
}

TEST_F(hostrt_configuration, the_device_is_lost_at_a_call_or_at_once) {
  configure("lose=cudaDeviceSynchronize:1:719");
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  reset();
  configure("lose=214");
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorECCUncorrectable);
}

TEST_F(hostrt_configuration, the_driver_can_be_absent) {
  configure("no-driver=100");
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorNoDevice);
}

TEST_F(hostrt_configuration, the_link_and_stalls_take_decimal_numbers) {
  configure("link=1e9:0.05:2.5e9:0;stall=cudaDeviceSynchronize:1:0.05");
  auto begun = now_s();
  ASSERT_EQ(cudaMemcpy(device(8), pinned(8), 8, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_GE(now_s() - begun, 0.05);
  begun = now_s();
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_GE(now_s() - begun, 0.05);
}

TEST_F(hostrt_configuration, links_of_several_devices_and_attributes_are_set) {
  configure(
      "devices=2;link=4e9:0:4e9:0;link-of=1:1e9:0.05:1e9:0;pair=0:1:1e9:0;no-peer=0:1;"
      "attribute=18:1");
  int found = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&found, cudaDevAttrIntegrated, 1), cudaSuccess);
  EXPECT_EQ(found, 1);
  EXPECT_EQ(cudaDeviceCanAccessPeer(&found, 0, 1), cudaSuccess);
  EXPECT_EQ(found, 0);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  auto const begun = now_s();
  ASSERT_EQ(cudaMemcpy(device(8), pinned(8), 8, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_GE(now_s() - begun, 0.05);
}

TEST_F(hostrt_configuration, a_refusal_says_what_is_wrong) {
  EXPECT_EQ(refusal_of("fial=cudaMalloc:1:2"),
            "'fial=cudaMalloc:1:2' is none of fail=, lose=, stall=, link=, missing=, no-driver=, "
            "devices=, no-trace=, link-of=, pair=, no-peer=, attribute=, issue=");
  EXPECT_EQ(refusal_of("fail=cudaMalloc:1"),
            "'fail=cudaMalloc:1': it takes 3 values between colons, not 2");
  EXPECT_EQ(refusal_of("fail=cudaMallok:1:2"),
            "'fail=cudaMallok:1:2': 'cudaMallok' is not a call of the host runtime");
  EXPECT_EQ(refusal_of("devices=two"), "'devices=two': 'two' is not a valid number");
  EXPECT_EQ(refusal_of("stall=cudaMalloc:1:-2"), "'stall=cudaMalloc:1:-2': '-2' is out of range");
  EXPECT_EQ(refusal_of("pair=0:16:1:0"), "'pair=0:16:1:0': '16' is out of range");
  EXPECT_EQ(refusal_of("link=nan:0:0:0"), "'link=nan:0:0:0': 'nan' is out of range");
}

TEST_F(hostrt_configuration, a_line_with_a_mistake_has_no_effect) {
  EXPECT_NE(refusal_of("no-driver=35;devices=99"), "none");
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
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
              "^PYXFER_HOSTRT cannot be read, so every CUDA call will fail: 'nonsense' is none of "
              "[^\n]*\n$");
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
