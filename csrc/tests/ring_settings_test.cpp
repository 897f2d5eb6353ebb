#include "ring/settings.hpp"

#include "engine_support.hpp"

#include <stdexcept>

namespace pyxfer::tests {
namespace {

constexpr ring_settings sound{4, std::size_t{1} << 20U, 3, fill_kind::plain, 20};

std::string refusal(ring_settings const& made) {
  return text_of<std::invalid_argument>([&] { validate(made); });
}

TEST(ring_settings, compute_their_pinned_bytes) {
  EXPECT_EQ(sound.pinned_bytes(), std::size_t{3} << 20U);
}

TEST(ring_settings, are_accepted_up_to_their_bounds) {
  EXPECT_NO_THROW(validate(sound));
  EXPECT_NO_THROW(validate({1, 4096, 2, fill_kind::streaming, 0}));
  EXPECT_NO_THROW(validate({64, std::size_t{64} << 20U, 4096, fill_kind::plain, 50}));
}

TEST(ring_settings, beyond_their_bounds_are_refused_and_the_error_names_the_bounds) {
  auto const refused = [](auto field, int value) {
    auto with = sound;
    with.*field = value;
    return refusal(with);
  };
  EXPECT_EQ(refused(&ring_settings::threads, 0), "a ring has 1 to 64 threads, and not 0");
  EXPECT_EQ(refused(&ring_settings::threads, 65), "a ring has 1 to 64 threads, and not 65");
  EXPECT_EQ(refused(&ring_settings::slots, 1), "a ring has 2 to 4096 slots, and not 1");
  EXPECT_EQ(refused(&ring_settings::slots, 4097), "a ring has 2 to 4096 slots, and not 4097");
  EXPECT_EQ(refused(&ring_settings::spin_us, -1),
            "a ring has 0 to 1000000 microseconds to spin, and not -1");
  EXPECT_EQ(refused(&ring_settings::spin_us, 1'000'001),
            "a ring has 0 to 1000000 microseconds to spin, and not 1000001");
}

TEST(ring_settings, with_chunks_of_any_other_size_are_refused) {
  for (long long const size : {-4096LL, 0LL, 2048LL, 4097LL, 12288LL, 134217728LL}) {
    auto with = sound;
    with.chunk_bytes = static_cast<std::size_t>(size);
    EXPECT_EQ(refusal(with),
              "a ring has chunks of 4096 to 67108864 bytes, a power of two, and not of " +
                  std::to_string(size));
  }
}

constexpr std::size_t kib = 1024;
constexpr std::size_t slot = 64 * kib;

ring_settings with(int threads, std::size_t chunk_bytes) {
  return {threads, chunk_bytes, 2, fill_kind::plain, 0};
}

TEST(ring_plan, covers_every_byte_once_in_chunks_that_fit) {
  for (auto const chunk_bytes : {4 * kib, 64 * kib, 1024 * kib}) {
    for (auto const near : {std::size_t{0}, chunk_bytes, 2 * chunk_bytes, 100 * chunk_bytes}) {
      for (int const beyond : {-1, 0, 1, 5000}) {
        if (near == 0 && beyond < 0) { continue; }
        auto const bytes = near + static_cast<std::size_t>(beyond);
        chunk_plan const plan{bytes, with(3, chunk_bytes)};
        std::size_t end = 0;
        for (std::size_t i = 0; i < plan.chunks(); ++i) {
          auto const part = plan.at(i);
          ASSERT_EQ(part.index, i);
          ASSERT_EQ(part.begin, end);
          ASSERT_GT(part.end, part.begin);
          ASSERT_LE(part.bytes(), chunk_bytes);
          end = part.end;
        }
        EXPECT_EQ(end, bytes);
      }
    }
  }
}

TEST(ring_plan, joins_several_chunks_up_to_the_last_byte) {
  chunk_plan const plan{10 * kib, with(1, 4 * kib)};
  auto const part = plan.from(1, 2);
  EXPECT_EQ(part.begin, 4 * kib);
  EXPECT_EQ(part.end, 10 * kib);
  EXPECT_EQ(part.bytes(), 6 * kib);
}

TEST(ring_plan, uses_as_many_threads_as_chunks_and_at_least_one) {
  EXPECT_EQ((chunk_plan{0, with(4, 64 * kib)}.threads()), 1);
  EXPECT_EQ((chunk_plan{64 * kib, with(4, 64 * kib)}.threads()), 1);
  EXPECT_EQ((chunk_plan{1024 * kib, with(4, 64 * kib)}.threads()), 4);
  EXPECT_EQ((chunk_plan{6 * slot, with(8, 64 * kib)}.threads()), 6);
}

TEST(ring_plan, uses_only_the_caller_for_a_few_chunks) {
  EXPECT_EQ((chunk_plan{4 * slot, with(8, 64 * kib)}.threads()), 1);
  EXPECT_EQ((chunk_plan{4 * slot + 1, with(8, 64 * kib)}.threads()), 5);
}

TEST(ring_plan, is_soon_done_with_two_to_four_chunks) {
  EXPECT_FALSE((chunk_plan{64 * kib, with(8, 64 * kib)}.is_soon_done()));
  EXPECT_TRUE((chunk_plan{64 * kib + 1, with(8, 64 * kib)}.is_soon_done()));
  EXPECT_TRUE((chunk_plan{4 * slot, with(8, 64 * kib)}.is_soon_done()));
  EXPECT_FALSE((chunk_plan{4 * slot + 1, with(8, 64 * kib)}.is_soon_done()));
}

TEST(ring_plan, leaves_small_uploads_to_the_driver_if_direct_bytes_is_set) {
  auto made = with(8, 64 * kib);
  EXPECT_FALSE((chunk_plan{1, made}.is_left_to_driver()));
  EXPECT_FALSE((chunk_plan{4 * slot, made}.is_left_to_driver()));
  made.direct_bytes = 32 * kib;
  EXPECT_TRUE((chunk_plan{32 * kib - 1, made}.is_left_to_driver()));
  EXPECT_FALSE((chunk_plan{32 * kib, made}.is_left_to_driver()));
  EXPECT_TRUE((chunk_plan{4 * slot, made}.is_left_to_driver()));
  EXPECT_FALSE((chunk_plan{4 * slot + 1, made}.is_left_to_driver()));
}

TEST(ring_plan, is_attended_with_many_threads) {
  EXPECT_TRUE((chunk_plan{5 * slot, with(8, 64 * kib)}.is_attended()));
  EXPECT_FALSE((chunk_plan{4 * slot, with(8, 64 * kib)}.is_attended()));
  EXPECT_FALSE((chunk_plan{1024 * kib, with(7, 64 * kib)}.is_attended()));
  EXPECT_FALSE((chunk_plan{1024 * kib, with(8, 64 * kib), 4}.is_attended()));
}

TEST(ring_plan, uses_no_more_threads_than_allowed) {
  EXPECT_EQ((chunk_plan{1024 * kib, with(4, 64 * kib)}.threads()), 4);
  EXPECT_EQ((chunk_plan{1024 * kib, with(4, 64 * kib), 2}.threads()), 2);
}

TEST(ring_plan, handles_the_largest_size) {
  constexpr auto most = std::numeric_limits<std::size_t>::max();
  chunk_plan const plan{most, with(64, 64 * kib)};
  EXPECT_EQ(plan.at(plan.chunks() - 1).end, most);
}

}  // namespace
}  // namespace pyxfer::tests
