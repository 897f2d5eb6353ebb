#include "copy/gate.hpp"

#include "engine_support.hpp"

#include <stdexcept>
#include <thread>

namespace pyxfer::tests {
namespace {

using copy_gate = engine_test;
using std::chrono::milliseconds;

void expect_done(stream const& on) { EXPECT_EQ(cudaStreamSynchronize(on.handle()), cudaSuccess); }

TEST_F(copy_gate, holds_its_stream_until_it_opens) {
  stream const own{0};
  gate held{own.view(), 60};
  std::this_thread::sleep_for(milliseconds{30});
  EXPECT_EQ(cudaStreamQuery(own.handle()), cudaErrorNotReady);
  held.open();
  expect_done(own);
  EXPECT_FALSE(held.timed_out());
}

TEST_F(copy_gate, holds_no_other_stream) {
  stream const own{0};
  stream const other{0};
  gate const held{own.view(), 60};
  expect_done(other);
}

TEST_F(copy_gate, opens_by_itself_and_reports_it) {
  stream const own{0};
  auto const begun = now_s();
  gate held{own.view(), 0.05};
  expect_done(own);
  EXPECT_GE(now_s() - begun, 0.05);
  EXPECT_TRUE(held.timed_out());
  held.open();
  EXPECT_TRUE(held.timed_out());
}

TEST_F(copy_gate, holds_nothing_if_it_opens_before_its_stream_reaches_it) {
  stream const own{0};
  gate first{own.view(), 60};
  gate second{own.view(), 60};
  second.open();
  second.open();
  first.open();
  expect_done(own);
  EXPECT_FALSE(second.timed_out());
}

TEST_F(copy_gate, is_not_left_closed_by_an_exception) {
  stream const own{0};
  auto const queue = [&own] {
    gate const held{own.view(), 60};
    throw std::runtime_error("while queueing");
  };
  EXPECT_THROW(queue(), std::runtime_error);
  expect_done(own);
}

TEST_F(copy_gate, can_be_destroyed_before_its_stream_reaches_it) {
  stream const own{0};
  gate first{own.view(), 60};
  { gate const second{own.view(), 60}; }
  first.open();
  expect_done(own);
}

TEST_F(copy_gate, reports_that_it_cannot_be_closed_and_holds_nothing) {
  stream const own{0};
  hostrt::fail("cudaLaunchHostFunc", 1, cudaErrorMemoryAllocation);
  EXPECT_THROW((gate{own.view(), 60}), memory_error);
  expect_done(own);
}

TEST_F(copy_gate, ends_all_waits_if_the_device_is_lost) {
  stream const own{0};
  gate const held{own.view(), 60};
  hostrt::lose_device(cudaErrorLaunchFailure);
  EXPECT_EQ(cudaStreamSynchronize(own.handle()), cudaErrorLaunchFailure);
  hostrt::reset();
}

}  // namespace
}  // namespace pyxfer::tests
