#include "ring/crew.hpp"

#include "engine_support.hpp"

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

TEST(ring_bell, lets_no_thread_sleep_if_it_was_rung_since) {
  bell made;
  auto const before = made.rings();
  made.ring(0);
  made.sleep(before);  // returns, because the bell was rung
  EXPECT_NE(made.rings(), before);
}

}  // namespace
}  // namespace pyxfer::tests
