#include "copy/lane.hpp"

#include "copy/gate.hpp"
#include "copy/timed.hpp"
#include "copy_support.hpp"
#include "cuda/device.hpp"
#include "engine_support.hpp"

#include <stdexcept>

namespace pyxfer::tests {
namespace {

constexpr lane sound{direction::h2d, 0x1000, 0x9000, 64, 100, 3};

TEST(copy_lane, is_named_in_the_words_of_the_documents) {
  EXPECT_EQ(direction_of("h2d"), direction::h2d);
  EXPECT_EQ(direction_of("d2h"), direction::d2h);
  EXPECT_EQ(text_of<std::invalid_argument>([] { static_cast<void>(direction_of("both")); }),
            "unknown direction \"both\"; a lane is h2d or d2h");
}

TEST(copy_lane, uses_its_slots_in_turn) {
  for (std::size_t turn = 0; turn < 7; ++turn) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(sound.host_at(turn)), 0x1000 + turn % 3 * 100);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(sound.device_at(turn)), 0x9000 + turn % 3 * 100);
  }
}

TEST(copy_lane, goes_from_the_host_to_the_device_or_back) {
  auto back = sound;
  back.way = direction::d2h;
  EXPECT_EQ(sound.source(1), sound.host_at(1));
  EXPECT_EQ(sound.destination(1), sound.device_at(1));
  EXPECT_EQ(back.source(1), sound.device_at(1));
  EXPECT_EQ(back.destination(1), sound.host_at(1));
}

TEST(copy_lane, is_accepted_if_valid) {
  EXPECT_NO_THROW(validate(sound));
  EXPECT_NO_THROW(validate({direction::d2h, 1, 1, 64, 0, 1}));
  EXPECT_NO_THROW(validate({direction::d2h, 1, 1, 64, 64, 2}));
  auto const* const no_address = "a lane needs a host and a device address";
  auto const* const nothing = "a lane needs at least one byte and one slot";
  std::array const refused{
      std::pair{lane{direction::h2d, 0, 1, 1, 1, 1}, no_address},
      std::pair{lane{direction::h2d, 1, 0, 1, 1, 1}, no_address},
      std::pair{lane{direction::h2d, 1, 1, 0, 1, 1}, nothing},
      std::pair{lane{direction::h2d, 1, 1, 1, 1, 0}, nothing},
      std::pair{lane{direction::h2d, 1, 1, 64, 63, 2},
                "the slots of a lane would overlap: stride is less than bytes"},
  };
  for (auto const& [made, text] : refused) {
    EXPECT_EQ(text_of<std::invalid_argument>([&, one = made] { validate(one); }), text);
  }
}

using copy_issue = engine_test;

constexpr std::array both_directions{direction::h2d, direction::d2h};
constexpr std::array every_mode{issue_mode::async, issue_mode::split, issue_mode::batch};

TEST_F(copy_issue, has_modes_in_the_words_of_the_documents) {
  EXPECT_EQ(issue_mode_of("async"), issue_mode::async);
  EXPECT_EQ(issue_mode_of("split"), issue_mode::split);
  EXPECT_EQ(issue_mode_of("batch"), issue_mode::batch);
  EXPECT_EQ(text_of<std::invalid_argument>([] { static_cast<void>(issue_mode_of("streams")); }),
            "unknown way to issue copies: \"streams\"");
}

TEST_F(copy_issue, blocking_moves_one_slot) {
  for (auto const way : both_directions) {
    for (auto const kind : {memory_kind::pageable, memory_kind::pinned, memory_kind::registered}) {
      lane_memory const memory{way, 100 * kib + 1, kind, 3};
      copy_blocking(memory.along(), 4);
      synchronize_device(0);
      EXPECT_TRUE(memory.has_arrived(1));
      EXPECT_TRUE(memory.is_untouched(0) && memory.is_untouched(2));
    }
  }
}

TEST_F(copy_issue, asynchronous_moves_one_slot_after_earlier_work_of_its_stream) {
  for (auto const way : both_directions) {
    stream const own{0};
    lane_memory const memory{way, 1001, memory_kind::pinned, 2};
    gate held{own.view(), 60};
    copy_async(memory.along(), 3, own.view());
    EXPECT_TRUE(memory.is_untouched(1));
    held.open();
    synchronize_device(0);
    EXPECT_TRUE(memory.has_arrived(1));
    EXPECT_TRUE(memory.is_untouched(0));
  }
}

TEST_F(copy_issue, moves_every_byte_of_every_slot_in_turn) {
  bench streams{0, 3, patience{60}};
  for (auto const mode : every_mode) {
    for (auto const way : both_directions) {
      lane_memory const memory{way, 20 * kib + 7, memory_kind::pinned, 4};
      issue(streams, mode, memory.along(), 3, 2);
      synchronize_device(0);
      EXPECT_TRUE(memory.has_arrived(3) && memory.has_arrived(0));
      EXPECT_TRUE(memory.is_untouched(1) && memory.is_untouched(2));
    }
  }
}

TEST_F(copy_issue, makes_no_call_for_no_copies) {
  bench streams{0, 2, patience{60}};
  lane_memory const memory{direction::h2d, 100};
  hostrt::reset();
  for (auto const mode : every_mode) { issue(streams, mode, memory.along(), 0, 0); }
  EXPECT_TRUE(hostrt::calls().empty());
}

TEST_F(copy_issue, split_moves_every_byte_of_any_size_over_any_number_of_streams) {
  for (std::size_t const width : {1U, 2U, 3U, 4U, 7U, 16U}) {
    bench streams{0, width, patience{60}};
    for (std::size_t const bytes : {std::size_t{1}, std::size_t{4095}, std::size_t{4096},
                                    std::size_t{4097}, std::size_t{8191}, std::size_t{12289},
                                    4096 * width - 1, 4096 * width, 4096 * width + 1, mib + 3}) {
      for (auto const way : both_directions) {
        lane_memory const memory{way, bytes};
        issue(streams, issue_mode::split, memory.along(), 0, 1);
        synchronize_device(0);
        EXPECT_TRUE(memory.has_arrived(0)) << bytes << " bytes over " << width << " streams";
      }
    }
  }
}

TEST_F(copy_issue, split_makes_at_most_one_copy_per_stream_and_none_of_zero_bytes) {
  bench streams{0, 4, patience{60}};
  struct expectation {
    std::size_t bytes;
    long copies;
  };
  for (auto const& [bytes, copies] :
       {expectation{100, 1}, expectation{4096, 1}, expectation{4097, 2}, expectation{16384, 4},
        expectation{16385, 3}, expectation{mib, 4}}) {
    lane_memory const memory{direction::h2d, bytes};
    hostrt::reset();
    issue(streams, issue_mode::split, memory.along(), 0, 1);
    EXPECT_EQ(count_of("cudaMemcpyAsync"), copies) << bytes;
    synchronize_device(0);
  }
}

TEST_F(copy_issue, split_uses_the_streams_at_the_same_time) {
  bench streams{0, 4, patience{60}};
  lane_memory const memory{direction::h2d, 4 * mib};
  gate held{streams.on(0), 60};
  issue(streams, issue_mode::split, memory.along(), 0, 1);
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(cudaStreamSynchronize(streams.on(i).handle()), cudaSuccess);
  }
  EXPECT_EQ(cudaStreamQuery(streams.on(0).handle()), cudaErrorNotReady);
  auto const* const from = lane_memory::inside(memory.along().source(0));
  auto const* const to = lane_memory::inside(memory.along().destination(0));
  EXPECT_NE(std::memcmp(from, to, mib), 0);
  EXPECT_EQ(std::memcmp(from + mib, to + mib, 3 * mib), 0);
  held.open();
  synchronize_device(0);
}

TEST_F(copy_issue, batch_is_one_call) {
  bench streams{0, 1, patience{60}};
  lane_memory const memory{direction::d2h, 1001, memory_kind::pinned, 5};
  hostrt::reset();
  issue(streams, issue_mode::batch, memory.along(), 0, 5);
  synchronize_device(0);
  EXPECT_EQ(count_of("cudaMemcpyBatchAsync"), 1);
  EXPECT_EQ(count_of("cudaMemcpyAsync"), 0);
  for (std::size_t turn = 0; turn < 5; ++turn) { EXPECT_TRUE(memory.has_arrived(turn)); }
}

TEST_F(copy_issue, batch_needs_a_driver_that_has_it) {
  bench streams{0, 1, patience{60}};
  lane_memory const memory{direction::h2d, 100};
  hostrt::set_missing("cudaMemcpyBatchAsync", true);
  try {
    issue(streams, issue_mode::batch, memory.along(), 0, 1);
    FAIL() << "nothing was thrown";
  } catch (cuda_error const& error) {
    EXPECT_EQ(error.call(), "cudaMemcpyBatchAsync");
    EXPECT_EQ(error.code(), cudaErrorCallRequiresNewerDriver);
    EXPECT_EQ(hint_for(error.code()),
              "This driver is too old for that call: update it, or choose another mode.");
  }
}

}  // namespace
}  // namespace pyxfer::tests
