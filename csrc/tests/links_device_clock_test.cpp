#include "links/device_clock.hpp"

#include "cuda/device.hpp"
#include "links_support.hpp"

namespace pyxfer::tests {
namespace {

using links_device_clock = links_test;

TEST_F(links_device_clock, places_an_event_between_the_calls_around_it) {
  stream const on{1};
  device_guard const guard{1};
  device_clock clock{1, on.view(), patience{60}};
  EXPECT_EQ(clock.device(), 1);
  event mark{1};
  auto const before = steady_ns(host_clock::now());
  mark.record(on.view());
  wait(mark, patience{60}, "an event");
  auto const after = steady_ns(host_clock::now());
  auto const found = static_cast<double>(clock.host_ns(mark));
  EXPECT_GE(found, static_cast<double>(before) - clock.error_ns() - 1);
  EXPECT_LE(found, static_cast<double>(after) + clock.error_ns() + 1);
  clock.close();
}

TEST_F(links_device_clock, has_the_error_of_both_comparisons) {
  stream const on{0};
  device_clock clock{0, on.view(), patience{60}};
  auto const at_first = clock.error_ns();
  EXPECT_GT(at_first, 0);
  for (int nth = 1; nth <= 8; ++nth) { hostrt::stall("cuEventQuery", nth, 0.02); }
  clock.compare_again(on.view(), patience{60});
  // The middle of each slow reading is 10 ms from its event, and so is its half trip.
  EXPECT_GT(clock.error_ns(), 15e6);
}

TEST_F(links_device_clock, waits_no_longer_than_its_patience) {
  stream const on{0};
  hostrt::stall("cuEventRecord", 1, 1e5);
  EXPECT_THROW((device_clock{0, on.view(), patience{0.05}}), timeout_error);
  hostrt::release_stalls();
}

}  // namespace
}  // namespace pyxfer::tests
