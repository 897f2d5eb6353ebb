#include "copy/content.hpp"

#include "copy/issue.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace pyxfer {
namespace {

constexpr int poison = 0xA5;
constexpr std::size_t word = sizeof(std::uint64_t);

/// splitmix64's output function (Steele, Lea, Flood 2014) of a counter: no state, so it runs at memory speed.
std::uint64_t scrambled(std::uint64_t value) {
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31U);
}

unsigned char* bytes_at(std::uintptr_t address) {
  return reinterpret_cast<unsigned char*>(address);  // NOLINT(performance-no-int-to-ptr)
}

std::uintptr_t number(void const* address) { return reinterpret_cast<std::uintptr_t>(address); }

/// The pattern as a sequence of words; the place of a word alone decides it.
class pattern {
 public:
  explicit pattern(std::uint64_t seed) : base_{scrambled(seed + step)} {}
  [[nodiscard]] std::uint64_t operator()(std::size_t index) const {
    return scrambled(base_ + index * step);
  }

 private:
  static constexpr std::uint64_t step = 0x9e3779b97f4a7c15ULL;
  std::uint64_t base_;
};

/// A blocking copy between the slot's device side and scratch, whatever the lane's own direction.
void copy_scratch(content_check const& what, direction way) {
  auto const device_side = number(what.along.device_at(what.slot));
  copy_blocking(lane{way, what.scratch, device_side, what.along.bytes, what.along.bytes, 1}, 0);
}

/// What the device holds now, fetched over bytes that cannot pass for it.
void fetch(content_check const& what) {
  std::memset(bytes_at(what.scratch), poison, what.along.bytes);
  copy_scratch(what, direction::d2h);
}

}  // namespace

void fill(std::uintptr_t address, std::size_t bytes, std::uint64_t seed) {
  auto* const to = bytes_at(address);
  pattern const word_at{seed};
  for (std::size_t i = 0; i < bytes / word; ++i) {
    auto const value = word_at(i);
    std::memcpy(to + i * word, &value, word);
  }
  auto const last = word_at(bytes / word);
  std::memcpy(to + bytes / word * word, &last, bytes % word);
}

std::optional<std::size_t> first_unlike(std::uintptr_t address, std::size_t bytes,
                                        std::uint64_t seed) {
  auto const* const at = bytes_at(address);
  pattern const word_at{seed};
  for (std::size_t i = 0; i * word < bytes; ++i) {
    auto const value = word_at(i);
    auto const length = std::min(word, bytes - i * word);
    if (std::memcmp(at + i * word, &value, length) == 0) { continue; }
    std::array<unsigned char, word> expected{};
    std::memcpy(expected.data(), &value, word);
    auto const differs = std::mismatch(expected.begin(), expected.begin() + length, at + i * word);
    return i * word + static_cast<std::size_t>(differs.first - expected.begin());
  }
  return std::nullopt;
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
    lane const back{direction::h2d, number(along.host_at(what.slot)),
                    number(along.device_at(what.slot)), along.bytes, along.bytes, 1};
    copy_blocking(back, 0);
  }
  fetch(what);
  return first_unlike(what.scratch, along.bytes, what.seed);
}

}  // namespace pyxfer
