#include "links/meeting.hpp"

#include "cuda/error.hpp"

#include <gtest/gtest.h>

#include <future>

namespace pyxfer::tests {
namespace {

std::exception_ptr fault_of(int number) { return std::make_exception_ptr(number); }

TEST(links_meeting, opens_when_all_have_arrived) {
  meeting place{2};
  std::atomic<bool> opened{false};
  auto const arrive = [&] {
    auto const through = place.arrive_and_wait();
    EXPECT_EQ(through, opened.load());
    place.finish();
    return through;
  };
  auto first = std::async(std::launch::async, arrive);
  auto second = std::async(std::launch::async, arrive);
  EXPECT_TRUE(place.await_arrivals({}));
  auto const before = host_clock::now();
  place.open([&] { opened = true; });
  place.await_finishes({});
  EXPECT_TRUE(first.get() && second.get());
  EXPECT_GE(place.opened_at(), before);
  EXPECT_FALSE(place.fault());
}

TEST(links_meeting, lets_no_thread_through_after_a_fault) {
  meeting place{2};
  auto first = std::async(std::launch::async, [&] { return place.arrive_and_wait(); });
  place.fail(fault_of(1));
  place.fail(fault_of(2));
  EXPECT_FALSE(first.get());
  EXPECT_FALSE(place.await_arrivals({}));
  EXPECT_TRUE(place.ended());
  try {
    std::rethrow_exception(place.fault());
  } catch (int number) { EXPECT_EQ(number, 1); }
}

TEST(links_meeting, lets_waiting_threads_return_if_it_ends_unopened) {
  meeting place{2};
  auto first = std::async(std::launch::async, [&] { return place.arrive_and_wait(); });
  place.end();
  EXPECT_FALSE(first.get());
  EXPECT_FALSE(place.fault());
}

TEST(links_meeting, asks_for_an_interruption_until_one_comes) {
  meeting place{1};
  int asked = 0;
  EXPECT_FALSE(place.await_arrivals([&] { return ++asked == 2; }));
  EXPECT_EQ(asked, 2);
  EXPECT_THROW(std::rethrow_exception(place.fault()), cancelled_error);
  auto late = std::async(std::launch::async, [&] { place.finish(); });
  place.await_finishes([&] { return ++asked > 0; });
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace pyxfer::tests
