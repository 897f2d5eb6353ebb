#include "ring/turns.hpp"

#include "cuda/error.hpp"
#include "engine_support.hpp"

#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>

namespace pyxfer::tests {
namespace {

TEST(ring_turns, come_in_the_order_in_which_they_were_taken) {
  constexpr int callers = 8;
  turns line;
  std::vector<turns::turn> taken;
  taken.reserve(callers);
  for (int i = 0; i < callers; ++i) { taken.push_back(line.take()); }
  std::mutex lock;
  std::vector<int> served;
  std::vector<std::thread> threads;
  threads.reserve(callers);
  for (int i = callers; i-- > 0;) {  // the last one waits first
    threads.emplace_back([&, i, own = std::move(taken[static_cast<std::size_t>(i)])]() mutable {
      own.await();
      std::scoped_lock const held{lock};
      served.push_back(i);
    });
  }
  for (auto& each : threads) { each.join(); }
  EXPECT_EQ(served, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(ring_turns, are_for_one_at_a_time) {
  turns line;
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 50; ++n) {
        auto turn = line.take();
        turn.await();
        most = std::max(most.load(), ++inside);
        --inside;
      }
    });
  }
  for (auto& each : threads) { each.join(); }
  EXPECT_EQ(most, 1);
}

TEST(ring_turns, that_are_let_go_unused_are_passed_over) {
  turns line;
  auto first = std::make_optional(line.take());
  first->await();
  std::thread leaving{[turn = line.take()]() mutable { auto const gone = std::move(turn); }};
  auto third = line.take();
  first.reset();
  third.await();
  leaving.join();
}

TEST(ring_turns, are_refused_when_the_line_is_closed_but_to_close_it_again) {
  turns line;
  auto before = std::make_optional(line.take());
  auto last = line.take_last();
  EXPECT_EQ(text_of<std::logic_error>([&] { static_cast<void>(line.take()); }),
            "the ring is closed: make another one");
  before->await();
  before.reset();
  last.await();
  { auto const served = std::move(last); }
  line.take_last().await();
}

TEST(ring_turns, end_when_the_line_is_abandoned) {
  turns line;
  auto stuck = line.take();
  stuck.await();
  std::string text;
  std::thread waiting{[&, turn = line.take()]() mutable {
    text = text_of<cancelled_error>([&] { turn.await(); });
  }};
  line.abandon();
  waiting.join();
  EXPECT_EQ(text, "cancelled before its turn: the ring was abandoned");
  EXPECT_THROW(static_cast<void>(line.take()), std::logic_error);
}

}  // namespace
}  // namespace pyxfer::tests
