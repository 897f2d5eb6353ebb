#include "copy/content.hpp"

#include "copy/lane.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/memory.hpp"
#include "cuda/process.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

namespace pyxfer {
namespace {

constexpr int poison = 0xA5;
/// A multiple of every block; larger scratch memory would take longer to page-lock than to copy.
constexpr std::size_t most_scratch = std::size_t{8} << 20U;
constexpr std::size_t word = sizeof(std::uint64_t);
constexpr std::size_t block_words = 512;
/// A few cores saturate the memory, and a thread is only worth starting for many bytes.
constexpr std::size_t most_parts = 4;
constexpr std::size_t least_part = std::size_t{8} << 20U;
using block = std::array<std::uint64_t, block_words>;

/// Which bytes are expected, and the place of the first one.
struct pattern {
  std::uint64_t seed;
  std::size_t first;
};

/// splitmix64's output function (Steele, Lea, Flood 2014).
std::uint64_t scrambled(std::uint64_t value) {
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31U);
}

unsigned char* bytes_at(std::uintptr_t address) {
  return reinterpret_cast<unsigned char*>(address);
}

std::uintptr_t number(void const* address) { return reinterpret_cast<std::uintptr_t>(address); }

/// Writes the pattern's words from number `first` on: a counter with a scrambled start and step,
/// whose halves are mixed. All words differ, and so do the patterns of different seeds. The loop
/// has no multiplication, so it runs at the speed of memory.
void make_words(block& words, std::uint64_t seed, std::size_t first) {
  auto const step = scrambled(seed + 2) | 1U;
  auto counter = scrambled(seed + 1) + first * step;
  for (auto& value : words) {
    value = counter ^ (counter >> 29U) ^ (counter << 23U);
    counter += step;
  }
}

/// Calls `use(begin, end)`, which must not throw, for a few parts of the bytes. If there are many
/// bytes, each part has its own thread, unless the system refuses to start one.
template <typename Use>
void in_parts(std::size_t bytes, Use const& use) {
  auto const cores = std::max<std::size_t>(1, std::thread::hardware_concurrency());
  auto const parts = std::clamp<std::size_t>(bytes / least_part, 1, std::min(most_parts, cores));
  auto const blocks = (bytes + sizeof(block) - 1) / sizeof(block);
  auto const length = (blocks + parts - 1) / parts * sizeof(block);
  std::vector<std::thread> others;
  others.reserve(parts);
  for (std::size_t i = 1; i < parts; ++i) {
    auto const use_part = [&use, begin = std::min(bytes, i * length),
                           end = std::min(bytes, (i + 1) * length)] { use(begin, end); };
    try {
      others.push_back(start_thread("pyxfer-verify", use_part));
    } catch (std::system_error const&) { use_part(); }
  }
  use(0, std::min(bytes, length));
  for (auto& thread : others) { thread.join(); }
}

/// Calls `use(offset, words, length)` for each block of the pattern until it returns false.
template <typename Use>
void for_each_block(std::size_t begin, std::size_t end, pattern const& from, Use const& use) {
  block words{};
  for (std::size_t offset = begin; offset < end; offset += sizeof words) {
    make_words(words, from.seed, (from.first + offset) / word);
    if (!use(offset, words.data(), std::min(sizeof words, end - offset))) { return; }
  }
}

/// Copies between the slot's device side and scratch, in the direction `way`, and waits.
void copy_scratch(content_check const& what, direction way) {
  auto const device_side = number(what.along.device_at(what.slot));
  copy_blocking(lane{way, what.scratch, device_side, what.along.bytes, what.along.bytes, 1}, 0);
}

/// Copies the slot's device side to scratch, which is poisoned first.
void fetch(content_check const& what) {
  std::memset(bytes_at(what.scratch), poison, what.along.bytes);
  copy_scratch(what, direction::d2h);
}

}  // namespace

void fill(std::uintptr_t address, std::size_t bytes, std::uint64_t seed, std::size_t first) {
  auto* const to = bytes_at(address);
  in_parts(bytes, [=](std::size_t begin, std::size_t end) {
    for_each_block(begin, end, {seed, first},
                   [=](std::size_t offset, void const* words, std::size_t length) {
                     std::memcpy(to + offset, words, length);
                     return true;
                   });
  });
}

std::optional<std::size_t> first_unlike(std::uintptr_t address, std::size_t bytes,
                                        std::uint64_t seed, std::size_t first) {
  std::atomic<std::size_t> found{bytes};
  auto const* const at = bytes_at(address);
  auto const note = [&](std::size_t offset) {
    auto before = found.load();
    while (offset < before && !found.compare_exchange_weak(before, offset)) {}
  };
  in_parts(bytes, [&](std::size_t begin, std::size_t end) {
    for_each_block(begin, end, {seed, first},
                   [&](std::size_t offset, void const* words, std::size_t length) {
                     if (std::memcmp(at + offset, words, length) == 0) { return true; }
                     auto const* const expected = static_cast<unsigned char const*>(words);
                     auto const differs = std::mismatch(expected, expected + length, at + offset);
                     note(offset + static_cast<std::size_t>(differs.first - expected));
                     return false;
                   });
  });
  if (found == bytes) { return std::nullopt; }
  return found.load();
}

void fill_device(int device, std::uintptr_t address, std::size_t bytes, std::uint64_t seed) {
  device_guard const guard{device};
  host_buffer scratch{std::min(bytes, most_scratch), memory_kind::pinned, device};
  for (std::size_t at = 0; at < bytes; at += scratch.size()) {
    auto const length = std::min(scratch.size(), bytes - at);
    fill(scratch.address(), length, seed, at);
    copy_blocking(lane{direction::h2d, scratch.address(), address + at, length, length, 1}, 0);
  }
  scratch.close();
}

std::optional<std::size_t> first_unlike_on_device(int device, std::uintptr_t address,
                                                  std::size_t bytes, std::uint64_t seed) {
  device_guard const guard{device};
  host_buffer scratch{std::min(bytes, most_scratch), memory_kind::pinned, device};
  std::optional<std::size_t> found;
  for (std::size_t at = 0; at < bytes && !found; at += scratch.size()) {
    auto const length = std::min(scratch.size(), bytes - at);
    copy_blocking(lane{direction::d2h, scratch.address(), address + at, length, length, 1}, 0);
    auto const differs = first_unlike(scratch.address(), length, seed, at);
    if (differs) { found = at + *differs; }
  }
  scratch.close();
  return found;
}

void prepare(int device, content_check const& what) {
  device_guard const guard{device};
  auto const& along = what.along;
  if (along.way == direction::h2d) {
    fill(number(along.host_at(what.slot)), along.bytes, what.seed);
    PYXFER_TRY(cudaMemset(along.device_at(what.slot), poison, along.bytes));
  } else {
    fill(what.scratch, along.bytes, what.seed);
    copy_scratch(what, direction::h2d);
    std::memset(along.host_at(what.slot), poison, along.bytes);
  }
  PYXFER_TRY(cudaDeviceSynchronize());
}

std::optional<std::size_t> first_wrong(int device, content_check const& what) {
  auto const& along = what.along;
  if (along.way == direction::d2h && !what.slow_reads) {
    return first_unlike(number(along.host_at(what.slot)), along.bytes, what.seed);
  }
  device_guard const guard{device};
  if (along.way == direction::d2h) {
    PYXFER_TRY(cudaMemset(along.device_at(what.slot), poison, along.bytes));
    lane const back{direction::h2d,
                    number(along.host_at(what.slot)),
                    number(along.device_at(what.slot)),
                    along.bytes,
                    along.bytes,
                    1};
    copy_blocking(back, 0);
  }
  fetch(what);
  return first_unlike(what.scratch, along.bytes, what.seed);
}

}  // namespace pyxfer
