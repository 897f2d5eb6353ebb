#include "copy/bench.hpp"

#include "copy/gate.hpp"
#include "engine_support.hpp"

#include <stdexcept>
#include <thread>

namespace pyxfer::tests {
namespace {

using copy_bench = engine_test;
using std::chrono::milliseconds;

bool is_idle(bench const& used, std::size_t index) {
  return cudaStreamQuery(used.on(index).handle()) == cudaSuccess;
}

/// Gives queued work time to run, if no gate holds it.
void let_streams_run() { std::this_thread::sleep_for(milliseconds{20}); }

void expect_all_idle_soon(bench const& used) {
  for (std::size_t i = 0; i < used.width(); ++i) {
    EXPECT_EQ(cudaStreamSynchronize(used.on(i).handle()), cudaSuccess);
  }
}

TEST_F(copy_bench, has_streams_and_marks) {
  bench used{0, 3, patience{1}};
  EXPECT_EQ(used.width(), 3U);
  EXPECT_EQ(used.device(), 0);
  EXPECT_EQ(used.limit().seconds(), 1);
  EXPECT_NE(used.on(0).handle(), used.on(2).handle());
  EXPECT_EQ(used.mark(bench::own_marks + 2).device(), 0);
  EXPECT_THROW(static_cast<void>(used.on(3)), std::out_of_range);
  EXPECT_THROW(static_cast<void>(used.mark(bench::own_marks + 3)), std::out_of_range);
}

TEST_F(copy_bench, fork_makes_the_other_streams_wait_for_the_first) {
  bench used{0, 3, patience{1}};
  gate held{used.on(0), 60};
  used.fork(used.mark(bench::fork_mark));
  let_streams_run();
  EXPECT_FALSE(is_idle(used, 1) || is_idle(used, 2));
  held.open();
  expect_all_idle_soon(used);
}

TEST_F(copy_bench, join_makes_the_first_stream_wait_for_the_others) {
  bench used{0, 3, patience{1}};
  gate held{used.on(2), 60};
  used.join();
  EXPECT_EQ(cudaStreamSynchronize(used.on(1).handle()), cudaSuccess);
  let_streams_run();
  EXPECT_FALSE(is_idle(used, 0));
  held.open();
  expect_all_idle_soon(used);
}

TEST_F(copy_bench, meet_makes_every_stream_wait_for_all) {
  bench used{0, 3, patience{1}};
  for (std::size_t last = 0; last < 3; ++last) {
    gate held{used.on(last), 60};
    used.meet();
    let_streams_run();
    for (std::size_t i = 0; i < 3; ++i) { EXPECT_FALSE(is_idle(used, i)); }
    held.open();
    expect_all_idle_soon(used);
  }
}

TEST_F(copy_bench, makes_no_call_to_fork_or_join_one_stream) {
  bench used{0, 1, patience{1}};
  hostrt::reset();
  used.fork(used.mark(bench::fork_mark));
  used.join();
  EXPECT_TRUE(hostrt::calls().empty());
}

TEST_F(copy_bench, drains_every_stream) {
  bench used{0, 2, patience{1}};
  for (std::size_t i = 0; i < 2; ++i) {
    hostrt::stall("cudaLaunchHostFunc", static_cast<int>(i) + 1, 0.05);
    gate{used.on(i), 60}.open();
  }
  used.drain();
  EXPECT_TRUE(is_idle(used, 0) && is_idle(used, 1));
}

TEST_F(copy_bench, notes_that_draining_timed_out) {
  bench used{0, 2, patience{1}};
  gate const first{used.on(0), 60};
  gate const second{used.on(1), 60};
  used.drain();
  EXPECT_EQ(
      take_cleanup_failures(),
      std::vector<std::string>{"a copy was still under way half a second after it was given up"});
}

TEST_F(copy_bench, notes_an_error_while_draining) {
  bench used{0, 1, patience{1}};
  hostrt::fail("cuEventRecord", 1, CUDA_ERROR_LAUNCH_FAILED);
  used.drain();
  auto const notes = take_cleanup_failures();
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes.front().rfind("cuEventRecord failed with CUDA_ERROR_LAUNCH_FAILED", 0), 0U);
}

using copy_drain_guard = engine_test;

TEST_F(copy_drain_guard, drains_when_an_exception_passes) {
  bench used{0, 2, patience{1}};
  auto const queue = [&used] {
    drain_guard const drained{used};
    hostrt::stall("cudaLaunchHostFunc", 1, 0.05);
    gate{used.on(1), 60}.open();
    throw std::runtime_error("while queueing");
  };
  EXPECT_THROW(queue(), std::runtime_error);
  EXPECT_TRUE(is_idle(used, 1));
}

TEST_F(copy_drain_guard, makes_no_call_when_the_operation_is_done) {
  bench used{0, 2, patience{1}};
  hostrt::reset();
  {
    drain_guard drained{used};
    drained.done();
  }
  EXPECT_TRUE(hostrt::calls().empty());
}

}  // namespace
}  // namespace pyxfer::tests
