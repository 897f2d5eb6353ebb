#include "copy/lane.hpp"

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
}

TEST(copy_lane, without_an_address_is_refused) {
  for (auto const& made :
       {lane{direction::h2d, 0, 1, 1, 1, 1}, lane{direction::h2d, 1, 0, 1, 1, 1}}) {
    EXPECT_EQ(text_of<std::invalid_argument>([&] { validate(made); }),
              "a lane needs a host and a device address");
  }
}

TEST(copy_lane, without_a_byte_or_a_slot_is_refused) {
  for (auto const& made :
       {lane{direction::h2d, 1, 1, 0, 1, 1}, lane{direction::h2d, 1, 1, 1, 1, 0}}) {
    EXPECT_EQ(text_of<std::invalid_argument>([&] { validate(made); }),
              "a lane needs at least one byte and one slot");
  }
}

TEST(copy_lane, whose_slots_overlap_is_refused) {
  EXPECT_EQ(text_of<std::invalid_argument>([] { validate({direction::h2d, 1, 1, 64, 63, 2}); }),
            "the slots of a lane would overlap: stride is less than bytes");
}

}  // namespace
}  // namespace pyxfer::tests
