#include "cuda/bracket.hpp"

#include "copy/gate.hpp"
#include "cuda/device.hpp"
#include "cuda/wait.hpp"
#include "engine_support.hpp"
#include "fork_support.hpp"

#include <thread>

namespace pyxfer::tests {
namespace {

using cuda_bracket = engine_test;
using std::chrono::milliseconds;
constexpr double rounding = 1e-6;  // an event gives milliseconds in single precision

TEST_F(cuda_bracket, on_a_stream_measures_that_streams_work) {
  stream const theirs{0};
  bracket around{0, theirs.view()};
  hostrt::stall("cudaLaunchHostFunc", 1, 0.05);
  around.begin();
  gate{theirs.view(), 60}.open();
  around.end();
  ASSERT_TRUE(around.ended_within(60));
  EXPECT_GE(around.elapsed_s(), 0.05);
}

TEST_F(cuda_bracket, on_a_stream_neither_drains_nor_waits) {
  stream const theirs{0};
  bracket around{0, theirs.view()};
  gate held{theirs.view(), 60};
  around.begin();
  around.end();
  EXPECT_EQ(count_of("cudaDeviceSynchronize"), 0);
  EXPECT_FALSE(around.ended_within(0.02));
  held.open();
  EXPECT_TRUE(around.ended_within(60));
}

TEST_F(cuda_bracket, on_a_stream_makes_no_stream) {
  stream const theirs{0};
  bracket const around{0, theirs.view()};
  EXPECT_EQ(count_of("cudaStreamCreateWithFlags"), 1);
}

TEST_F(cuda_bracket, drained_measures_the_hosts_time) {
  bracket around{0};
  around.begin();
  std::this_thread::sleep_for(milliseconds{30});
  around.end();
  ASSERT_TRUE(around.ended_within(60));
  EXPECT_GE(around.elapsed_s(), 0.03);
}

TEST_F(cuda_bracket, drained_measures_work_of_hidden_streams) {
  stream const hidden{0};
  bracket around{0};
  around.begin();
  hostrt::stall("cudaLaunchHostFunc", 1, 0.05);
  gate{hidden.view(), 60}.open();
  around.end();
  ASSERT_TRUE(around.ended_within(60));
  EXPECT_GE(around.elapsed_s(), 0.05);
}

TEST_F(cuda_bracket, drained_does_not_include_earlier_work) {
  stream const hidden{0};
  bracket around{0};
  double ended_s = 0;  // when the earlier work has ended
  hostrt::stall("cudaLaunchHostFunc", 1, 0.2);
  ASSERT_EQ(cudaLaunchHostFunc(
                hidden.handle(), [](void* at) { *static_cast<double*>(at) = now_s(); }, &ended_s),
            cudaSuccess);
  around.begin();
  ASSERT_GT(ended_s, 0);
  around.end();
  ASSERT_TRUE(around.ended_within(60));
  EXPECT_LE(around.elapsed_s(), (now_s() - ended_s) * (1 + rounding));
}

TEST_F(cuda_bracket, does_not_change_the_callers_context) {
  hostrt::set_device_count(2);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  bracket around{0};
  around.begin();
  around.end();
  int current = -1;
  EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 1);
}

TEST_F(cuda_bracket, drained_is_at_fault_if_the_events_are_closer_than_the_host_readings) {
  EXPECT_STREQ(drained_fault(1e-3, 1.1e-3), "the device stamped the first event late");
  EXPECT_STREQ(drained_fault(1e-3, 0.9e-3), "");
  EXPECT_STREQ(drained_fault(1e-3, 1e-3), "");
}

TEST_F(cuda_bracket, drained_is_not_at_fault_within_the_clocks_resolution) {
  EXPECT_STREQ(drained_fault(1e-5, 1e-5 + 1e-6), "");
  EXPECT_STRNE(drained_fault(1e-5, 1e-5 + 2e-6), "");
}

TEST_F(cuda_bracket, drained_is_not_at_fault_within_the_precision) {
  EXPECT_STREQ(drained_fault(1e-3, 1.005e-3), "");
  EXPECT_STRNE(drained_fault(1e-3, 1.010e-3), "");
}

TEST_F(cuda_bracket, can_be_reused) {
  bracket around{0};
  for (int i = 0; i < 3; ++i) {
    around.begin();
    std::this_thread::sleep_for(milliseconds{5});
    around.end();
    ASSERT_TRUE(around.ended_within(60));
    EXPECT_GE(around.elapsed_s(), 0.005);
  }
}

TEST_F(cuda_bracket, has_no_time_before_it_was_used) {
  bracket const around{0};
  EXPECT_EQ(text_of<cuda_error>([&] {
              static_cast<void>(around.elapsed_s());
            }).rfind("cuEventElapsedTime failed with CUDA_ERROR_INVALID_HANDLE (400)", 0),
            0U);
}

TEST_F(cuda_bracket, reports_every_failure_and_leaves_nothing) {
  stream const theirs{0};
  auto const use = [](bracket& around) {
    around.begin();
    around.end();
    EXPECT_TRUE(around.ended_within(60));
    EXPECT_LT(around.elapsed_s(), 60);
  };
  expect_every_failure_reported([&use] {
    bracket drained{0};
    use(drained);
    drained.close();
  });
  expect_every_failure_reported([&] {
    bracket on_stream{0, theirs.view()};
    use(on_stream);
  });
}

TEST_F(cuda_bracket, reports_a_lost_device) {
  bracket around{0};
  around.begin();
  hostrt::lose_device(cudaErrorIllegalAddress);
  EXPECT_THROW(around.end(), device_lost_error);
  hostrt::reset();
}

TEST_F(cuda_bracket, cannot_begin_or_be_read_in_a_forked_child) {
  bracket around{0};
  around.begin();
  around.end();
  ASSERT_TRUE(around.ended_within(60));
  auto const uses = {std::function<void()>{[&] { around.begin(); }},
                     std::function<void()>{[&] { static_cast<void>(around.ended_within(0)); }},
                     std::function<void()>{[&] { static_cast<void>(around.elapsed_s()); }}};
  for (auto const& use : uses) {
    auto const text = in_forked_child([&] { return text_of<forked_error>(use); });
    EXPECT_EQ(text.rfind("This process was forked after", 0), 0U) << text;
  }
}

}  // namespace
}  // namespace pyxfer::tests
