#include "ring/queue.hpp"

#include "cuda/error.hpp"
#include "cuda/process.hpp"
#include "engine_support.hpp"
#include "fork_support.hpp"
#include "slow_allocations.hpp"

#include <limits>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace pyxfer::tests {
namespace {

class ring_ticket : public engine_test {
 protected:
  std::promise<staged> transfer_;
  ticket made_{transfer_.get_future().share()};
};

TEST_F(ring_ticket, is_done_when_its_transfer_is) {
  EXPECT_FALSE(made_.done());
  transfer_.set_value({0, 5, 5, 0, 0, 0});
  EXPECT_TRUE(made_.done());
  EXPECT_EQ(made_.result(0).chunks, 5U);
  EXPECT_EQ(made_.result(0).chunks, 5U);
}

TEST_F(ring_ticket, waits_for_its_transfer) {
  for (auto const limit : {60.0, 1e300, std::numeric_limits<double>::infinity()}) {
    std::promise<staged> transfer;
    ticket const waiting{transfer.get_future().share()};
    std::thread ending{[&] { transfer.set_value({0, 5, 5, 0, 0, 0}); }};
    EXPECT_EQ(waiting.result(limit).chunks, 5U);
    ending.join();
  }
}

TEST_F(ring_ticket, throws_if_the_transfer_takes_longer) {
  for (auto const limit : {0.02, 0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(static_cast<void>(made_.result(limit)), timeout_error);
  }
}

TEST_F(ring_ticket, throws_the_error_of_its_transfer) {
  transfer_.set_exception(std::make_exception_ptr(std::runtime_error("no")));
  EXPECT_TRUE(made_.done());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(text_of<std::runtime_error>([this] { static_cast<void>(made_.result(0)); }), "no");
  }
}

TEST_F(ring_ticket, is_refused_in_a_forked_child) {
  note_process();
  auto const found = in_forked_child([this] {
    return text_of<forked_error>([this] { static_cast<void>(made_.done()); }) +
           text_of<forked_error>([this] { static_cast<void>(made_.result(60)); });
  });
  EXPECT_EQ(found.find("This process was forked after"), 0U) << found;
  EXPECT_NE(found.rfind("This process was forked after"), 0U) << found;
}

interruption const none;

/// A queue, and functions that run short transfers through it.
class ring_queue : public engine_test {
 protected:
  using job = transfer_queue::job;

  transfer_queue& queue() { return *queue_; }
  /// The caller's thread holds the front until the result is destroyed.
  [[nodiscard]] transfer_queue::place hold_front() { return queue_->enter(none); }
  [[nodiscard]] ticket start(job work) { return queue_->start(std::move(work)); }
  /// A started transfer that adds its number.
  [[nodiscard]] ticket start_numbered(int number) {
    return start([this, number](std::atomic<bool>& /*cancelled*/) {
      order_.push_back(number);
      return staged{};
    });
  }
  void run_numbered(int number) {
    auto const front = queue_->enter(none);
    order_.push_back(number);
  }
  void await_size(std::size_t count) {
    while (queue_->size() != count) { std::this_thread::yield(); }
  }
  [[nodiscard]] std::vector<int> const& order() const { return order_; }

 private:
  std::vector<int> order_;  ///< the transfers' numbers; only one transfer at a time writes it
  std::optional<transfer_queue> queue_{std::in_place};
};

TEST_F(ring_queue, runs_started_transfers_in_order_in_one_other_thread) {
  std::vector<std::thread::id> where;
  std::vector<ticket> tickets;
  for (int i = 0; i < 20; ++i) {
    tickets.push_back(start_numbered(i));
    tickets.push_back(start([&](std::atomic<bool>& /*cancelled*/) {
      where.push_back(std::this_thread::get_id());
      return staged{};
    }));
  }
  for (auto const& started : tickets) { static_cast<void>(started.result(60)); }
  for (int i = 0; i < 20; ++i) { EXPECT_EQ(order()[static_cast<std::size_t>(i)], i); }
  EXPECT_EQ((std::set<std::thread::id>{where.begin(), where.end()}).size(), 1U);
  EXPECT_NE(where[0], std::this_thread::get_id());
}

TEST_F(ring_queue, runs_blocking_and_started_transfers_in_the_order_of_the_calls) {
  std::vector<ticket> started;
  for (int i = 0; i < 100; i += 2) {
    started.push_back(start_numbered(i));
    run_numbered(i + 1);
  }
  EXPECT_TRUE(started.back().done());
  for (int i = 0; i < 100; ++i) { EXPECT_EQ(order()[static_cast<std::size_t>(i)], i); }
}

TEST_F(ring_queue, gives_the_front_to_one_caller_at_a_time) {
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 50; ++n) {
        auto const front = hold_front();
        most = std::max(most.load(), ++inside);
        --inside;
      }
    });
  }
  for (auto& thread : threads) { thread.join(); }
  EXPECT_EQ(most, 1);
}

/// A caller that wakes while a started transfer runs sleeps again, after the other callers.
TEST_F(ring_queue, wakes_the_next_caller_in_the_queue) {
  auto front = std::make_optional(hold_front());
  auto const started = start([](std::atomic<bool>& /*cancelled*/) {
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    return staged{};
  });
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] { run_numbered(i); });
    await_size(3 + static_cast<std::size_t>(i));
  }
  front.reset();
  for (auto& thread : threads) { thread.join(); }
  EXPECT_EQ(order(), (std::vector<int>{0, 1, 2}));
}

TEST_F(ring_queue, gives_a_started_transfers_result_or_error_to_its_ticket) {
  auto const good =
      start([](std::atomic<bool>& /*cancelled*/) { return staged{0, 7, 7, 0, 0, 0}; });
  auto const bad =
      start([](std::atomic<bool>& /*cancelled*/) -> staged { throw std::runtime_error("no"); });
  EXPECT_EQ(good.result(60).chunks, 7U);
  EXPECT_THROW(static_cast<void>(bad.result(60)), std::runtime_error);
}

TEST_F(ring_queue, has_destroyed_the_work_of_a_transfer_when_its_ticket_is_done) {
  auto const held = std::make_shared<int>(0);
  auto const started = start([held](std::atomic<bool>& /*cancelled*/) { return staged{}; });
  static_cast<void>(started.result(60));
  EXPECT_EQ(held.use_count(), 1);
}

/// The order of two callers must not depend on where in the call one of them is delayed.
TEST_F(ring_queue, serves_threads_that_start_transfers_while_allocations_are_slow) {
  slow_allocations const slow;
  std::vector<std::thread> threads;
  threads.reserve(4);
  std::atomic<int> done{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 500; ++n) {
        auto const started = start([](std::atomic<bool>& /*cancelled*/) { return staged{}; });
        static_cast<void>(started.result(60));
        ++done;
      }
    });
  }
  for (auto& thread : threads) { thread.join(); }
  EXPECT_EQ(done, 4 * 500);
}

TEST_F(ring_queue, cancels_every_waiting_transfer_at_once) {
  auto front = std::make_optional(hold_front());
  auto const started = start_numbered(1);
  std::string refused;
  std::thread waiting{[&] { refused = text_of<cancelled_error>([&] { run_numbered(2); }); }};
  await_size(3);
  queue().cancel();
  waiting.join();  // before the front has ended
  EXPECT_NE(refused, "nothing was thrown");
  EXPECT_TRUE(started.done());
  EXPECT_THROW(static_cast<void>(started.result(0)), cancelled_error);
  EXPECT_TRUE(front->cancelled());
  front.reset();
  run_numbered(3);
  EXPECT_EQ(order(), std::vector<int>{3});
}

TEST_F(ring_queue, lets_an_interruption_end_a_wait) {
  auto const front = hold_front();
  EXPECT_THROW(static_cast<void>(queue().enter([] { return true; })), cancelled_error);
}

TEST_F(ring_queue, refuses_transfers_when_it_is_closed_and_can_be_closed_again) {
  EXPECT_TRUE(queue().close(60));
  EXPECT_EQ(text_of<std::logic_error>([&] { run_numbered(1); }),
            "the ring is closed: make another one");
  EXPECT_THROW(static_cast<void>(start_numbered(2)), std::logic_error);
  EXPECT_TRUE(queue().close(60));
}

TEST_F(ring_queue, closes_after_all_transfers) {
  auto front = std::make_optional(hold_front());
  auto const started = start_numbered(1);
  std::thread closing{[&] {
    EXPECT_TRUE(queue().close(60));
    EXPECT_EQ(order(), std::vector<int>{1});
  }};
  front.reset();
  closing.join();
  EXPECT_TRUE(started.done());
}

TEST_F(ring_queue, ends_after_its_started_transfers) {
  int done = 0;
  {
    transfer_queue own;
    for (int i = 0; i < 3; ++i) {
      static_cast<void>(own.start([&](std::atomic<bool>& /*cancelled*/) {
        std::this_thread::sleep_for(std::chrono::milliseconds{50});  // the queue is destroyed
        ++done;
        return staged{};
      }));
    }
  }
  EXPECT_EQ(done, 3);
}

TEST_F(ring_queue, waits_for_the_front_no_longer_than_the_patience_of_close) {
  auto front = std::make_optional(hold_front());
  EXPECT_THROW(static_cast<void>(queue().close(0.02)), timeout_error);
  EXPECT_THROW(static_cast<void>(queue().close(0)), timeout_error);
  front.reset();
  EXPECT_TRUE(queue().close(60));
}

TEST_F(ring_queue, ends_every_wait_when_it_is_abandoned) {
  auto const front = hold_front();
  auto const started = start_numbered(1);
  std::thread waiting{[&] { EXPECT_THROW(run_numbered(2), cancelled_error); }};
  await_size(3);
  std::thread closing{[&] { EXPECT_FALSE(queue().close(60)); }};
  await_size(4);
  queue().abandon();
  closing.join();
  waiting.join();
  EXPECT_THROW(static_cast<void>(started.result(60)), cancelled_error);
  EXPECT_THROW(run_numbered(3), std::logic_error);
}

}  // namespace
}  // namespace pyxfer::tests
