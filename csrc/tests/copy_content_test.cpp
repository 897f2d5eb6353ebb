#include "copy/content.hpp"

#include "copy_support.hpp"
#include "cuda/device.hpp"
#include "engine_support.hpp"

#include <pthread.h>

#include <random>

namespace pyxfer::tests {
namespace {

using bytes = std::vector<unsigned char>;

constexpr std::array<std::size_t, 12> odd_lengths{1,    2,    7,    8,    9,    63,
                                                  4095, 4096, 4097, 8191, 8193, 100003};

std::uintptr_t address_of(bytes const& what) {
  return reinterpret_cast<std::uintptr_t>(what.data());
}

bytes filled(std::size_t length, std::uint64_t seed) {
  bytes made(length);
  fill(address_of(made), length, seed);
  return made;
}

std::size_t equal_bytes(bytes const& one, bytes const& other) {
  std::size_t equal = 0;
  for (std::size_t i = 0; i < one.size(); ++i) { equal += one[i] == other[i] ? 1U : 0U; }
  return equal;
}

TEST(copy_fill, depends_on_the_seed) {
  std::array<std::uint64_t, 6> const seeds{0, 1, 2, 3, UINT64_MAX, UINT64_MAX - 1};
  for (auto const one : seeds) {
    EXPECT_EQ(filled(100003, one), filled(100003, one));
    for (auto const other : seeds) {
      if (one == other) { continue; }
      // By chance about one byte in 256 is equal.
      EXPECT_LT(equal_bytes(filled(100003, one), filled(100003, other)), 100003U / 50);
    }
  }
}

TEST(copy_fill, depends_on_the_place) {
  for (std::uint64_t const seed : {0U, 1U, 77U}) {
    auto const whole = filled(100000, seed);
    for (std::size_t const shift : {1U, 8U, 512U, 4096U, 8192U}) {
      bytes const early(whole.begin(), whole.end() - static_cast<std::ptrdiff_t>(shift));
      bytes const late(whole.begin() + static_cast<std::ptrdiff_t>(shift), whole.end());
      EXPECT_LT(equal_bytes(early, late), early.size() / 50) << shift;
    }
  }
}

TEST(copy_fill, of_a_part_equals_that_part_of_the_whole) {
  auto const whole = filled(100003, 5);
  for (auto const length : odd_lengths) {
    bytes const part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_EQ(filled(length, 5), part) << length;
  }
}

TEST(copy_fill, of_a_part_of_a_large_buffer_equals_that_part_of_the_whole) {
  auto const large = filled(32 * mib + 3, 8);
  auto const less = filled(8 * mib - 5, 8);
  EXPECT_TRUE(std::equal(less.begin(), less.end(), large.begin()));
  EXPECT_EQ(first_unlike(address_of(filled(32 * mib + 1, 8)), 32 * mib + 1, 8), std::nullopt);
  EXPECT_NE((bytes{large.end() - 3, large.end()}), (bytes{0, 0, 0}));
}

TEST(copy_fill, writes_every_part_if_no_thread_can_be_started) {
  auto const expected = filled(32 * mib, 5);
  pthread_attr_t before{};
  pthread_attr_t beyond_the_address_space{};
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_getattr_default_np(&beyond_the_address_space), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&beyond_the_address_space, std::size_t{1} << 47U), 0);
  ASSERT_EQ(pthread_setattr_default_np(&beyond_the_address_space), 0);
  auto const found = filled(32 * mib, 5);
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  EXPECT_TRUE(found == expected);
}

TEST(copy_fill, writes_nothing_after_the_end) {
  for (auto const length : odd_lengths) {
    bytes made(length + 16, 0xEE);
    fill(address_of(made), length, 9);
    EXPECT_TRUE(std::all_of(made.end() - 16, made.end(), [](auto byte) { return byte == 0xEE; }));
  }
}

TEST(copy_fill, uses_every_value_of_a_byte_about_as_often) {
  std::array<std::size_t, 256> counts{};
  for (auto const byte : filled(256 * kib, 3)) { ++counts.at(byte); }
  for (auto const count : counts) {
    EXPECT_GT(count, 800U);
    EXPECT_LT(count, 1250U);
  }
}

TEST(copy_first_unlike, finds_nothing_after_fill) {
  for (auto const length : odd_lengths) {
    for (std::uint64_t const seed : {0U, 1U, 12345U}) {
      EXPECT_EQ(first_unlike(address_of(filled(length, seed)), length, seed), std::nullopt);
    }
  }
}

TEST(copy_first_unlike, finds_a_single_changed_bit_at_any_offset) {
  std::minstd_rand random{42};
  for (auto const length : odd_lengths) {
    auto made = filled(length, length);
    for (int i = 0; i < 200; ++i) {
      auto const at = random() % length;
      auto const flipped = static_cast<unsigned char>(1U << random() % 8);
      made[at] ^= flipped;
      EXPECT_EQ(first_unlike(address_of(made), length, length), at);
      made[at] ^= flipped;
    }
  }
}

TEST(copy_first_unlike, covers_large_buffers_to_the_last_byte) {
  for (std::size_t const length :
       {16 * mib - 1, 16 * mib, 16 * mib + 1, 24 * mib + 2, 32 * mib + 1, 32 * mib + 3}) {
    auto made = filled(length, 6);
    EXPECT_EQ(first_unlike(address_of(made), length, 6), std::nullopt);
    for (auto const at : {length - 1, length / 2, length / 4 * 3, std::size_t{8} * mib}) {
      made[at] ^= 1U;
      EXPECT_EQ(first_unlike(address_of(made), length, 6), at) << length;
      made[at] ^= 1U;
    }
  }
}

TEST(copy_first_unlike, finds_the_first_of_several) {
  auto made = filled(20000, 1);
  for (std::size_t const at : {19999U, 15000U, 4096U, 4095U, 0U}) {
    made[at] ^= 1U;
    EXPECT_EQ(first_unlike(address_of(made), made.size(), 1), at);
  }
}

TEST(copy_first_unlike, finds_another_seed) {
  EXPECT_TRUE(first_unlike(address_of(filled(4096, 1)), 4096, 2).has_value());
}

TEST(copy_first_unlike, looks_at_an_address_of_any_alignment) {
  bytes made(1100);
  auto const begin = reinterpret_cast<std::uintptr_t>(made.data());
  for (std::size_t shift = 0; shift < 16; ++shift) {
    fill(begin + shift, 1000, 4);
    EXPECT_EQ(first_unlike(begin + shift, 1000, 4), std::nullopt);
  }
}

struct checked_copy {
  direction way;
  memory_kind kind;
  bool slow_reads;
};

/// Every direction and kind of memory, read back by the processor or through the device.
class copy_content : public engine_test, public ::testing::WithParamInterface<checked_copy> {
 protected:
  static constexpr std::size_t length = 70001;

  void SetUp() override {
    engine_test::SetUp();
    memory_.emplace(GetParam().way, length, GetParam().kind, 3U);
    scratch_.emplace(check_parts * 8192, memory_kind::pageable, 0);  // several pieces
  }

  void TearDown() override {
    memory_.reset();
    scratch_.reset();
    engine_test::TearDown();
  }

  [[nodiscard]] content_check check(std::uint64_t seed = 1) const {
    return {
        memory_->along(), 1, seed, {scratch_->address(), scratch_->size()}, GetParam().slow_reads};
  }
  [[nodiscard]] unsigned char* destination() const {
    return lane_memory::inside(memory_->along().destination(1));
  }
  [[nodiscard]] lane_memory const& memory() const { return *memory_; }

 private:
  std::optional<lane_memory> memory_;
  std::optional<host_buffer> scratch_;
};

TEST_P(copy_content, is_right_after_a_copy) {
  prepare(0, check());
  copy_blocking(check().along, 1);
  synchronize_device(0);
  EXPECT_TRUE(memory().has_arrived(1));
  EXPECT_EQ(first_wrong(0, check()), std::nullopt);
}

TEST_P(copy_content, is_wrong_from_the_start_without_a_copy) {
  prepare(0, check());
  EXPECT_EQ(first_wrong(0, check()), 0U);
}

TEST_P(copy_content, is_wrong_from_the_middle_after_half_a_copy) {
  prepare(0, check());
  auto half = check().along;
  half.bytes = length / 2;
  copy_blocking(half, 1);
  synchronize_device(0);
  EXPECT_EQ(first_wrong(0, check()), length / 2);
}

TEST_P(copy_content, is_wrong_if_an_earlier_copy_left_it) {
  prepare(0, check(1));
  copy_blocking(check().along, 1);
  prepare(0, check(2));
  EXPECT_EQ(first_wrong(0, check(2)), 0U);
}

TEST_P(copy_content, is_wrong_if_another_slot_was_copied) {
  prepare(0, check());
  std::memcpy(destination(), lane_memory::inside(memory().along().source(2)), length);
  EXPECT_TRUE(first_wrong(0, check()).has_value());
}

TEST_P(copy_content, is_wrong_at_a_changed_byte) {
  std::minstd_rand random{7};
  prepare(0, check());
  copy_blocking(check().along, 1);
  synchronize_device(0);
  for (int i = 0; i < 20; ++i) {
    auto const at = random() % length;
    destination()[at] ^= 0x10U;
    EXPECT_EQ(first_wrong(0, check()), at);
    destination()[at] ^= 0x10U;
    if (GetParam().slow_reads) {  // it was read back to the source; nothing else has changed
      EXPECT_EQ(first_wrong(0, check()), std::nullopt);
    }
  }
}

TEST_P(copy_content, checks_change_no_other_slot) {
  prepare(0, check());
  copy_blocking(check().along, 1);
  static_cast<void>(first_wrong(0, check()));
  EXPECT_TRUE(memory().is_untouched(0) && memory().is_untouched(2));
}

TEST_P(copy_content, reports_every_failure) {
  expect_every_failure_reported([this] {
    prepare(0, check());
    static_cast<void>(first_wrong(0, check()));
  });
}

using copy_content_in_threads = engine_test;

TEST_F(copy_content_in_threads, every_part_is_checked_and_every_failure_reported) {
  constexpr std::size_t length = 20U << 20U;
  lane_memory const memory{direction::h2d, length, memory_kind::pinned, 1};
  host_buffer const scratch{check_parts * 65536, memory_kind::pinned, 0};
  content_check const check{memory.along(), 0, 1, {scratch.address(), scratch.size()}, false};
  prepare(0, check);
  copy_blocking(check.along, 0);
  EXPECT_EQ(first_wrong(0, check), std::nullopt);
  auto* const arrived = lane_memory::inside(check.along.destination(0));
  for (std::size_t const at :
       {length - 1, length / 2, std::size_t{70000}}) {  // each before the last
    arrived[at] ^= 1U;
    EXPECT_EQ(first_wrong(0, check), at);
  }
  for (int const nth : {1, 100, 300}) {
    hostrt::fail("cudaMemcpy", nth, cudaErrorUnknown);
    EXPECT_THROW(static_cast<void>(first_wrong(0, check)), cuda_error);
  }
  content_check const without{memory.along(), 0, 1, {scratch.address(), 4096}, false};
  EXPECT_THROW(static_cast<void>(first_wrong(0, without)), std::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(
    every, copy_content,
    ::testing::Values(checked_copy{direction::h2d, memory_kind::pageable, false},
                      checked_copy{direction::h2d, memory_kind::pinned, false},
                      checked_copy{direction::h2d, memory_kind::registered, false},
                      checked_copy{direction::h2d, memory_kind::write_combined, true},
                      checked_copy{direction::d2h, memory_kind::pageable, false},
                      checked_copy{direction::d2h, memory_kind::pinned, false},
                      checked_copy{direction::d2h, memory_kind::registered, false},
                      checked_copy{direction::d2h, memory_kind::write_combined, true}));

}  // namespace
}  // namespace pyxfer::tests
