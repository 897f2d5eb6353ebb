#include "ring/crew.hpp"

#include "engine_support.hpp"

#include <thread>

namespace pyxfer::tests {
namespace {

TEST(ring_bell, wakes_everybody_who_sleeps) {
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
  for (auto& each : sleepers) { each.join(); }
}

TEST(ring_bell, that_was_rung_since_lets_nobody_sleep) {
  bell made;
  auto const before = made.rings();
  made.ring(0);
  made.sleep(before);  // or this would never return
  EXPECT_NE(made.rings(), before);
}

}  // namespace
}  // namespace pyxfer::tests
