#include "cuda/host_buffer.hpp"
#include "cuda/registration.hpp"

#include "engine_support.hpp"

namespace pyxfer::tests {
namespace {

class cuda_known_memory : public engine_test {
 protected:
  static constexpr std::size_t bytes = 64 * 4096;

  [[nodiscard]] known_as known() const { return known_memory(memory_.address(), bytes); }
  [[nodiscard]] registration lock(std::size_t offset, std::size_t length) const {
    return registration{memory_.address() + offset, length, 0};
  }

 private:
  host_buffer memory_{bytes, memory_kind::pageable, 0};
};

TEST_F(cuda_known_memory, is_pageable_if_nothing_is_locked) {
  EXPECT_EQ(known(), known_as::pageable);
}

TEST_F(cuda_known_memory, is_page_locked_within_one_registration) {
  auto const whole = lock(0, bytes);
  EXPECT_EQ(known(), known_as::page_locked);
}

TEST_F(cuda_known_memory, is_page_locked_within_one_allocation) {
  host_buffer const pinned{bytes, memory_kind::pinned, 0};
  EXPECT_EQ(known_memory(pinned.address() + 100, bytes - 100), known_as::page_locked);
}

TEST_F(cuda_known_memory, is_partly_locked_if_two_registrations_cover_it) {
  auto const first = lock(0, bytes / 2);
  auto const second = lock(bytes / 2, bytes / 2);
  EXPECT_EQ(known(), known_as::partly_locked);
}

TEST_F(cuda_known_memory, is_partly_locked_if_only_both_ends_are_registered) {
  auto const first = lock(0, 4096);
  auto const last = lock(bytes - 4096, 4096);
  EXPECT_EQ(known(), known_as::partly_locked);
}

TEST_F(cuda_known_memory, is_partly_locked_if_only_the_beginning_is_registered) {
  auto const first = lock(0, bytes - 1);
  EXPECT_EQ(known(), known_as::partly_locked);
}

/// The driver copies such an array like a pageable one.
TEST_F(cuda_known_memory, is_pageable_if_only_the_end_is_registered) {
  auto const last = lock(4096, bytes - 4096);
  EXPECT_EQ(known(), known_as::pageable);
}

TEST_F(cuda_known_memory, reports_a_query_that_fails) {
  auto const whole = lock(0, bytes);
  for (auto const* const question : {"cudaPointerGetAttributes", "cuPointerGetAttributes"}) {
    expect_failure_reported([&] { static_cast<void>(known()); }, question, 1);
  }
}

}  // namespace
}  // namespace pyxfer::tests
