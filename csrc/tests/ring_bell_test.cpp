#include "ring/crew.hpp"

#include "engine_support.hpp"
#include "futex_calls.hpp"

#include <thread>

namespace pyxfer::tests {
namespace {

TEST(ring_bell, wakes_all_sleeping_threads) {
  bell made;
  std::atomic<bool> over{false};
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 8; ++i) {
    sleepers.emplace_back([&] {
      for (auto rings = made.rings(); !over; rings = made.rings()) { made.sleep(rings); }
    });
  }
  over = true;
  made.ring(8);
  for (auto& sleeper : sleepers) { sleeper.join(); }
}

TEST(ring_bell, has_rung_before_it_wakes_a_thread) {
  bell made;
  std::atomic<int> sleeps{0};
  std::atomic<bool> woken{false};
  futex_calls const calls{[&] { ++sleeps; },
                          [&] {
                            while (!woken && sleeps < 2) { std::this_thread::yield(); }
                          }};
  std::thread sleeper{[&] {
    while (made.rings() == 0) { made.sleep(0); }
    woken = true;
  }};
  while (sleeps == 0) { std::this_thread::yield(); }
  made.ring(1);
  sleeper.join();
}

TEST(ring_bell, lets_no_thread_sleep_if_it_was_rung_since) {
  bell made;
  auto const before = made.rings();
  made.ring(0);
  made.sleep(before);  // returns, because the bell was rung
  EXPECT_NE(made.rings(), before);
}

}  // namespace
}  // namespace pyxfer::tests
