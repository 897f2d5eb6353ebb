#include "ring/slot_order.hpp"

#include "engine_support.hpp"

namespace pyxfer::tests {
namespace {

constexpr std::size_t chunk = std::size_t{128} << 10U;

ring_settings of(int slots, std::size_t chunk_bytes = chunk) {
  return {1, chunk_bytes, slots, fill_kind::plain, 0};
}

/// An order of 64 slots, 8 MiB, that threads fill or empty.
class ring_slot_order : public ::testing::Test {
 protected:
  slot_order made_{of(64)};

  void do_all(std::uint64_t from, std::uint64_t to) {
    for (auto number = from; number < to; ++number) { made_.done(number); }
  }
  /// Issues copies as long as the order gives slots.
  std::vector<std::size_t> take_all(std::size_t copies_under_way) {
    std::vector<std::size_t> counts;
    for (auto next = made_.next(copies_under_way); next.count != 0 && counts.size() < 100;
         next = made_.next(copies_under_way)) {
      counts.push_back(next.count);
      made_.issue(next);
    }
    return counts;
  }
};

TEST_F(ring_slot_order, lets_threads_fill_every_slot_once_until_a_copy_has_ended) {
  made_.begin(100, slot_order::part::fill, false);
  EXPECT_TRUE(made_.may_begin(63));
  EXPECT_FALSE(made_.may_begin(64));
  made_.pass(1);
  EXPECT_TRUE(made_.may_begin(64));
  EXPECT_FALSE(made_.may_begin(65));
}

TEST_F(ring_slot_order, lets_threads_empty_only_slots_whose_copy_has_ended) {
  made_.begin(100, slot_order::part::empty, false);
  EXPECT_FALSE(made_.may_begin(0));
  made_.pass(3);
  EXPECT_TRUE(made_.may_begin(2));
  EXPECT_FALSE(made_.may_begin(3));
}

TEST_F(ring_slot_order, gives_an_idle_engine_every_full_slot) {
  made_.begin(100, slot_order::part::fill, false);
  EXPECT_EQ(made_.next(0).count, 0U);
  made_.done(0);
  EXPECT_EQ(made_.next(0).count, 1U);
  made_.done(1);
  EXPECT_EQ(made_.next(0).count, 2U);
}

TEST_F(ring_slot_order, gives_slots_only_in_order) {
  made_.begin(100, slot_order::part::fill, false);
  do_all(1, 20);
  EXPECT_EQ(made_.next(0).count, 0U);
  made_.done(0);
  auto const next = made_.next(0);
  EXPECT_EQ(next.first, 0U);
  EXPECT_EQ(next.count, 20U);
}

TEST_F(ring_slot_order, waits_for_more_slots_the_busier_the_engine_is) {
  made_.begin(100, slot_order::part::fill, false);
  do_all(0, 3);
  EXPECT_EQ(made_.next(1).count, 0U);
  made_.done(3);
  EXPECT_EQ(made_.next(1).count, 4U);  // half a mebibyte
  do_all(4, 15);
  EXPECT_EQ(made_.next(2).count, 0U);
  made_.done(15);
  EXPECT_EQ(made_.next(2).count, 16U);  // a quarter of the round
}

TEST_F(ring_slot_order, does_not_wait_at_the_end_of_a_transfer) {
  made_.begin(2, slot_order::part::fill, false);
  do_all(0, 2);
  EXPECT_EQ(made_.next(2).count, 2U);
}

TEST_F(ring_slot_order, gives_at_most_half_of_its_slots_at_once) {
  made_.begin(100, slot_order::part::fill, false);
  do_all(0, 64);
  EXPECT_EQ(take_all(0), (std::vector<std::size_t>{32, 32}));
}

TEST_F(ring_slot_order, gives_at_most_half_of_its_slots_to_a_copy_of_a_download) {
  made_.begin(300, slot_order::part::empty, false);
  EXPECT_EQ(take_all(0), (std::vector<std::size_t>{4, 8, 16, 32, 4}));
  do_all(0, 64);
  EXPECT_EQ(take_all(0), (std::vector<std::size_t>{32, 32}));
}

TEST(ring_slot_order_rounds, are_small_for_uploads_of_few_chunks_and_all_slots_for_downloads) {
  slot_order made{of(512)};
  EXPECT_EQ(made.round_for(10, slot_order::part::fill), 64U);  // 8 MiB
  EXPECT_EQ(made.round_for(800, slot_order::part::fill), 100U);
  EXPECT_EQ(made.round_for(100000, slot_order::part::fill), 512U);
  EXPECT_EQ(made.round_for(10, slot_order::part::empty), 512U);
  EXPECT_EQ(made.round_for(100000, slot_order::part::fill, 20), 20U);
  EXPECT_EQ(made.round_for(10, slot_order::part::fill, 200), 64U);
  EXPECT_EQ((slot_order{of(2, std::size_t{64} << 20U)}.round_for(1, slot_order::part::fill)), 2U);
  made.begin(800, slot_order::part::fill, false);
  EXPECT_EQ(made.slot_of(99), 99U);
  EXPECT_EQ(made.slot_of(100), 0U);
  EXPECT_FALSE(made.may_begin(100));
}

TEST_F(ring_slot_order, gives_only_adjacent_slots) {
  made_.begin(100, slot_order::part::fill, false);
  do_all(0, 60);
  EXPECT_EQ(take_all(0), (std::vector<std::size_t>{32, 28}));
  made_.pass(60);
  do_all(60, 70);
  EXPECT_EQ(take_all(0), (std::vector<std::size_t>{4, 6}));
}

TEST_F(ring_slot_order, downloads_begin_and_end_with_small_copies) {
  made_.begin(64, slot_order::part::empty, false);
  EXPECT_EQ(take_all(0), (std::vector<std::size_t>{4, 8, 16, 18, 9, 4, 2, 1, 1, 1}));
}

TEST_F(ring_slot_order, downloads_refill_only_emptied_slots) {
  made_.begin(100, slot_order::part::empty, false);
  static_cast<void>(take_all(0));
  EXPECT_EQ(made_.issued(), 64U);
  do_all(0, 10);
  static_cast<void>(take_all(0));
  EXPECT_EQ(made_.issued(), 74U);
}

TEST_F(ring_slot_order, numbers_chunks_consecutively_over_transfers) {
  made_.begin(100, slot_order::part::fill, false);
  EXPECT_EQ(made_.first(), 0U);
  made_.begin(5, slot_order::part::fill, false);
  EXPECT_EQ(made_.first(), 100U);
  EXPECT_EQ(made_.end(), 105U);
  EXPECT_EQ(made_.slot_of(made_.first()), 36U);
}

TEST_F(ring_slot_order, uploads_begin_in_the_first_slots_if_the_engine_is_idle) {
  made_.begin(100, slot_order::part::fill, true);
  EXPECT_EQ(made_.slot_of(made_.first()), 0U);
  made_.begin(5, slot_order::part::fill, true);
  EXPECT_EQ(made_.slot_of(made_.first()), 0U);
  EXPECT_GE(made_.first(), 100U);
  EXPECT_EQ(made_.end(), made_.first() + 5);
  made_.begin(5, slot_order::part::empty, true);
  EXPECT_EQ(made_.slot_of(made_.first()), 5U);
}

TEST_F(ring_slot_order, ignores_chunks_of_a_transfer_that_ended_early) {
  made_.begin(64, slot_order::part::fill, false);
  do_all(0, 64);
  made_.begin(64, slot_order::part::fill, false);
  made_.pass(made_.issued());
  EXPECT_EQ(made_.next(0).count, 0U);
  do_all(64, 66);
  auto const next = made_.next(0);
  EXPECT_EQ(next.first, 64U);
  EXPECT_EQ(next.count, 2U);
}

TEST(ring_slot_order_sizes, take_at_least_one_slot_of_any_ring) {
  for (auto const& settings :
       {of(2, 4096), of(3, 4096), of(4096, 4096), of(2, std::size_t{64} << 20U)}) {
    slot_order made{settings};
    made.begin(10, slot_order::part::fill, false);
    made.done(0);
    EXPECT_EQ(made.next(0).count, 1U);
    slot_order other{settings};
    other.begin(10, slot_order::part::empty, false);
    EXPECT_GE(other.next(0).count, 1U);
  }
}

}  // namespace
}  // namespace pyxfer::tests
