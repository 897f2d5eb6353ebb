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
  auto with = sound;
  with.threads = 0;
  EXPECT_EQ(refusal(with), "a ring has 1 to 64 threads, and not 0");
  with.threads = 65;
  EXPECT_EQ(refusal(with), "a ring has 1 to 64 threads, and not 65");
  with = sound;
  with.slots = 1;
  EXPECT_EQ(refusal(with), "a ring has 2 to 4096 slots, and not 1");
  with.slots = 4097;
  EXPECT_EQ(refusal(with), "a ring has 2 to 4096 slots, and not 4097");
  with = sound;
  with.spin_us = -1;
  EXPECT_EQ(refusal(with), "a ring has 0 to 1000000 microseconds to spin, and not -1");
  with.spin_us = 1'000'001;
  EXPECT_EQ(refusal(with), "a ring has 0 to 1000000 microseconds to spin, and not 1000001");
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

}  // namespace
}  // namespace pyxfer::tests
