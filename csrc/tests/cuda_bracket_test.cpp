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
  EXPECT_EQ(count_of("cudaStreamCreateWithFlags"), 1);
  EXPECT_EQ(count_of("cuCtxSynchronize"), 0);
  EXPECT_FALSE(around.ended_within(0.02));
  held.open();
  EXPECT_TRUE(around.ended_within(60));
}

/// By more than the resolution of the clock and half a per cent.
TEST_F(cuda_bracket, drained_is_at_fault_if_the_events_are_closer_than_the_host_readings) {
  EXPECT_STREQ(drained_fault(1e-3, 1.1e-3), "the device stamped the first event late");
  for (auto const& [elapsed_s, wall_s] :
       {std::pair{1e-3, 0.9e-3}, {1e-3, 1e-3}, {1e-3, 1.005e-3}, {1e-5, 1.1e-5}}) {
    EXPECT_STREQ(drained_fault(elapsed_s, wall_s), "");
  }
  EXPECT_STRNE(drained_fault(1e-5, 1e-5 + 2e-6), "");
  EXPECT_STRNE(drained_fault(1e-3, 1.010e-3), "");
}

TEST_F(cuda_bracket, drained_measures_the_hosts_time_again_and_again) {
  bracket around{0};
  for (int i = 0; i < 2; ++i) {
    around.begin();
    std::this_thread::sleep_for(milliseconds{30});
    around.end();
    ASSERT_TRUE(around.ended_within(60));
    EXPECT_GE(around.elapsed_s(), 0.03);
  }
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
