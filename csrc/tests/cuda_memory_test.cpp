#include "cuda/memory.hpp"

#include "numa/memory.hpp"

#include "engine_support.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <utility>

namespace pyxfer::tests {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20U;
constexpr std::array every_kind{memory_kind::pageable, memory_kind::pinned, memory_kind::registered,
                                memory_kind::write_combined};

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

/// The number of pages of a range that are in memory; nothing if a part of it is not mapped.
std::optional<std::size_t> resident_pages(std::uintptr_t address, std::size_t bytes) {
  std::vector<unsigned char> found((bytes + page_bytes() - 1) / page_bytes());
  if (::mincore(reinterpret_cast<void*>(address), bytes, found.data()) != 0) {
    return std::nullopt;
  }
  return static_cast<std::size_t>(std::count_if(
      found.begin(), found.end(), [](unsigned char page) { return (page & 1U) != 0; }));
}

/// The size of this process's address space.
std::size_t mapped_bytes() {
  std::size_t pages = 0;
  std::ifstream{"/proc/self/statm"} >> pages;
  return pages * page_bytes();
}

using cuda_device_buffer = engine_test;

TEST_F(cuda_device_buffer, larger_than_memory_is_a_memory_error) {
  auto const too_much = std::numeric_limits<std::size_t>::max() / 4;
  EXPECT_THROW((device_buffer{too_much, 0}), memory_error);
}

using cuda_host_buffer = engine_test;

TEST_F(cuda_host_buffer, is_named_in_the_words_of_the_documents) {
  EXPECT_EQ(memory_kind_of("pageable"), memory_kind::pageable);
  EXPECT_EQ(memory_kind_of("pinned"), memory_kind::pinned);
  EXPECT_EQ(memory_kind_of("registered"), memory_kind::registered);
  EXPECT_EQ(memory_kind_of("write-combined"), memory_kind::write_combined);
  EXPECT_EQ(text_of<std::invalid_argument>([] { static_cast<void>(memory_kind_of("locked")); }),
            "unknown memory \"locked\"; known are pageable, pinned, registered, write-combined");
}

TEST_F(cuda_host_buffer, is_page_locked_as_its_kind_says) {
  std::array<std::vector<std::string>, 4> const expected{
      {{}, {"pinned"}, {"registered"}, {"write-combined"}}};
  for (std::size_t i = 0; i < every_kind.size(); ++i) {
    host_buffer const buffer{5000, every_kind.at(i), 0};
    std::vector<std::string> kinds;
    for (auto const& allocation : made()) {
      kinds.push_back(allocation.substr(0, allocation.find(' ')));
    }
    EXPECT_EQ(kinds, expected.at(i));
    EXPECT_EQ(buffer.kind(), every_kind.at(i));
    EXPECT_EQ(buffer.size(), 5000U);
  }
}

TEST_F(cuda_host_buffer, has_whole_pages_that_were_touched) {
  for (auto const kind : every_kind) {
    host_buffer const buffer{mib + 1, kind, 0};
    EXPECT_EQ(buffer.address() % page_bytes(), 0U);
    EXPECT_EQ(resident_pages(buffer.address(), mib + 1), mib / page_bytes() + 1);
  }
}

TEST_F(cuda_host_buffer, measures_the_page_locking) {
  hostrt::stall("cudaHostAlloc", 1, 0.02);
  hostrt::stall("cudaHostRegister", 1, 0.03);
  EXPECT_GE((host_buffer{100, memory_kind::pinned, 0}.locking_s()), 0.02);
  EXPECT_GE((host_buffer{100, memory_kind::registered, 0}.locking_s()), 0.03);
  EXPECT_EQ((host_buffer{100, memory_kind::pageable, 0}.locking_s()), 0);
}

TEST_F(cuda_host_buffer, with_zero_bytes_is_refused) {
  for (auto const kind : every_kind) {
    EXPECT_EQ(text_of<std::invalid_argument>([kind] { host_buffer const none{0, kind, 0}; }),
              "a buffer needs at least one byte");
  }
}

TEST_F(cuda_host_buffer, larger_than_the_address_space_is_out_of_memory) {
  auto const too_much = std::numeric_limits<std::size_t>::max() / 4;
  EXPECT_THROW((host_buffer{too_much, memory_kind::pageable, 0}), std::bad_alloc);
  EXPECT_THROW((host_buffer{too_much, memory_kind::registered, 0}), std::bad_alloc);
  EXPECT_THROW((host_buffer{too_much, memory_kind::pinned, 0}), memory_error);
  EXPECT_THROW((host_buffer{too_much, memory_kind::write_combined, 0}), memory_error);
}

TEST_F(cuda_host_buffer, larger_than_the_free_memory_is_refused_before_it_is_touched) {
  auto const ask_for_all_memory = [] {
    ::alarm(1);  // ends the child before a buffer that is touched uses up the machine's memory
    try {
      host_buffer const made{memory_of_machine().total_bytes, memory_kind::pageable, 0};
    } catch (std::bad_alloc const&) { std::_Exit(0); }
  };
  EXPECT_EXIT(ask_for_all_memory(), ::testing::ExitedWithCode(0), "");
}

TEST_F(cuda_host_buffer, unmaps_its_pages_if_they_cannot_be_page_locked) {
  auto const before = mapped_bytes();
  for (int i = 0; i < 4; ++i) {
    hostrt::fail("cudaHostRegister", 1, cudaErrorMemoryAllocation);
    EXPECT_THROW((host_buffer{16 * mib, memory_kind::registered, 0}), memory_error);
  }
  EXPECT_LT(mapped_bytes(), before + 16 * mib);
}

TEST_F(cuda_host_buffer, is_unmapped_when_it_is_closed_or_moved_and_released) {
  for (auto const kind : every_kind) {
    host_buffer first{mib, kind, 0};
    auto const address = first.address();
    std::optional<host_buffer> second{std::move(first)};
    EXPECT_EQ(second->address(), address);
    EXPECT_EQ(second->kind(), kind);
    second.reset();
    EXPECT_EQ(resident_pages(address, mib), std::nullopt);
    host_buffer other{mib, kind, 0};
    auto const closed = other.address();
    for (int i = 0; i < 2; ++i) { other.close(); }
    EXPECT_EQ(resident_pages(closed, mib), std::nullopt);
    EXPECT_EQ(other.address(), 0U);
  }
}

TEST_F(cuda_host_buffer, is_unmapped_even_if_it_cannot_be_unregistered) {
  host_buffer buffer{mib, memory_kind::registered, 0};
  auto const address = buffer.address();
  hostrt::fail("cudaHostUnregister", 1, cudaErrorNotSupported);
  EXPECT_THROW(buffer.close(), cuda_error);
  EXPECT_EQ(resident_pages(address, mib), std::nullopt);
}

TEST_F(cuda_host_buffer, forgets_a_range_and_nothing_else) {
  host_buffer buffer{4 * page_bytes(), memory_kind::pageable, 0};
  std::memset(reinterpret_cast<void*>(buffer.address()), 7, buffer.size());
  buffer.forget(page_bytes(), 2 * page_bytes());
  EXPECT_EQ(resident_pages(buffer.address(), buffer.size()), 2U);
  auto const* const bytes = reinterpret_cast<unsigned char const*>(buffer.address());
  EXPECT_EQ(bytes[page_bytes() - 1], 7);
  EXPECT_EQ(bytes[page_bytes()], 0);
  EXPECT_EQ(bytes[3 * page_bytes() - 1], 0);
  EXPECT_EQ(bytes[3 * page_bytes()], 7);
}

TEST_F(cuda_host_buffer, forgets_only_a_range_inside_pageable_memory) {
  for (auto const kind :
       {memory_kind::pinned, memory_kind::registered, memory_kind::write_combined}) {
    host_buffer buffer{page_bytes(), kind, 0};
    EXPECT_EQ(text_of<std::invalid_argument>([&] { buffer.forget(0, page_bytes()); }),
              "only pageable memory can be given back to the system");
  }
  constexpr auto most = std::numeric_limits<std::size_t>::max();
  host_buffer buffer{2 * page_bytes(), memory_kind::pageable, 0};
  for (auto const& range :
       {std::pair{page_bytes(), 2 * page_bytes()}, {3 * page_bytes(), 0}, {page_bytes(), most}}) {
    EXPECT_EQ(text_of<std::out_of_range>([&] { buffer.forget(range.first, range.second); }),
              "the range to forget is not inside the buffer");
  }
  EXPECT_EQ(text_of<std::runtime_error>([&] { buffer.forget(1, 1); }),
            "madvise(MADV_DONTNEED) failed: Invalid argument");
}

constexpr std::size_t some = 5000;

class cuda_registration : public engine_test {
 protected:
  [[nodiscard]] std::uintptr_t address() const {
    return reinterpret_cast<std::uintptr_t>(memory_.data());
  }

 private:
  std::vector<char> memory_ = std::vector<char>(some, 7);
};

TEST_F(cuda_registration, locks_memory_in_place_and_is_released_once) {
  {
    registration first{address(), some, 0};
    registration const second{std::move(first)};
    EXPECT_EQ(second.address(), address());
    EXPECT_EQ(second.size(), some);
    EXPECT_EQ(made(), std::vector<std::string>{"registered " + std::to_string(address())});
  }
  EXPECT_EQ(count_of("cudaHostUnregister"), 1);
  EXPECT_EQ(*reinterpret_cast<char const*>(address()), 7);
}

TEST_F(cuda_registration, of_no_memory_is_refused) {
  EXPECT_EQ(text_of<std::invalid_argument>([] { registration const none{0, some, 0}; }),
            "memory to lock needs an address and at least one byte");
  EXPECT_THROW((registration{address(), 0, 0}), std::invalid_argument);
}

TEST_F(cuda_registration, reports_memory_that_is_already_locked) {
  registration const first{address(), some, 0};
  try {
    registration const second{address() + 8, 16, 0};
    FAIL() << "it was locked twice";
  } catch (cuda_error const& error) {
    EXPECT_EQ(error.code(), cudaErrorHostMemoryAlreadyRegistered);
  }
}

TEST_F(cuda_registration, locks_read_only_memory_for_reading) {
  auto* const pages = ::mmap(nullptr, some, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  auto const mapped = reinterpret_cast<std::uintptr_t>(pages);
  {
    registration const locked{mapped, some, 0, false};
    EXPECT_EQ(made(), std::vector<std::string>{"registered " + std::to_string(mapped)});
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
  EXPECT_EQ(::munmap(pages, some), 0);
}

TEST_F(cuda_registration, never_locks_writeable_memory_only_for_reading) {
  hostrt::fail("cudaHostRegister", 1, cudaErrorInvalidValue);
  EXPECT_THROW((registration{address(), some, 0}), cuda_error);
  EXPECT_EQ(count_of("cudaHostRegister"), 1);
}

TEST_F(cuda_registration, does_not_retry_after_another_error) {
  hostrt::fail("cudaHostRegister", 1, cudaErrorMemoryAllocation);
  EXPECT_THROW((registration{address(), some, 0, false}), memory_error);
  EXPECT_EQ(count_of("cudaHostRegister"), 1);
}

class cuda_known_memory : public engine_test {
 protected:
  static constexpr std::size_t bytes = 64 * 4096;

  [[nodiscard]] known_as known() const { return known_memory(memory_.address(), bytes); }
  [[nodiscard]] registration lock(std::size_t begin, std::size_t end) const {
    return registration{memory_.address() + begin, end - begin, 0};
  }

 private:
  host_buffer memory_{bytes, memory_kind::pageable, 0};
};

TEST_F(cuda_known_memory, is_page_locked_if_one_registration_holds_all_of_it) {
  using ranges = std::vector<std::pair<std::size_t, std::size_t>>;
  std::array const found{
      std::pair{ranges{}, known_as::pageable},
      std::pair{ranges{{0, bytes}}, known_as::page_locked},
      std::pair{ranges{{0, bytes / 2}, {bytes / 2, bytes}}, known_as::partly_locked},
      std::pair{ranges{{0, 4096}, {bytes - 4096, bytes}}, known_as::partly_locked},
      std::pair{ranges{{0, bytes - 1}}, known_as::partly_locked},
      // The driver copies such an array like a pageable one.
      std::pair{ranges{{4096, bytes}}, known_as::pageable},
  };
  for (auto const& [locked, expected] : found) {
    std::vector<registration> held;
    for (auto const& [begin, end] : locked) { held.push_back(lock(begin, end)); }
    EXPECT_EQ(known(), expected);
  }
}

TEST_F(cuda_known_memory, is_page_locked_within_one_allocation) {
  host_buffer const pinned{bytes, memory_kind::pinned, 0};
  EXPECT_EQ(known_memory(pinned.address() + 100, bytes - 100), known_as::page_locked);
}

TEST_F(cuda_known_memory, reports_a_query_that_fails) {
  auto const whole = lock(0, bytes);
  for (auto const* const question : {"cudaPointerGetAttributes", "cuPointerGetAttributes"}) {
    expect_failure_reported([&] { static_cast<void>(known()); }, question, 1);
  }
}

}  // namespace
}  // namespace pyxfer::tests
