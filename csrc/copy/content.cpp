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
#include <exception>
#include <stdexcept>
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
/// A thread is only worth starting for many bytes.
constexpr std::size_t least_part = std::size_t{4} << 20U;
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

/// The first exception of several threads.
class first_fault {
 public:
  template <typename Run>
  void guard(Run const& run) noexcept {
    try {
      run();
    } catch (...) {
      if (!taken_.exchange(true)) { fault_ = std::current_exception(); }
    }
  }
  /// After the threads have been joined.
  void rethrow() const {
    if (fault_) { std::rethrow_exception(fault_); }
  }

 private:
  std::atomic<bool> taken_{false};
  std::exception_ptr fault_;
};

/// Calls `use(part, begin, end)` for a few parts of the bytes. If there are many bytes, each part
/// has its own thread, unless the system refuses to start one.
template <typename Use>
void in_parts(std::size_t bytes, Use const& use) {
  auto const cores = std::max<std::size_t>(1, std::thread::hardware_concurrency());
  auto const parts = std::clamp<std::size_t>(bytes / least_part, 1, std::min(check_parts, cores));
  auto const blocks = (bytes + sizeof(block) - 1) / sizeof(block);
  auto const length = (blocks + parts - 1) / parts * sizeof(block);
  first_fault fault;
  auto const use_part = [&](std::size_t part) {
    fault.guard(
        [&] { use(part, std::min(bytes, part * length), std::min(bytes, (part + 1) * length)); });
  };
  std::vector<std::thread> others;
  others.reserve(parts);
  for (std::size_t part = 1; part < parts; ++part) {
    try {
      others.push_back(start_thread("pyxfer-verify", [&, part] { use_part(part); }));
    } catch (std::system_error const&) { use_part(part); }
  }
  use_part(0);
  for (auto& thread : others) { thread.join(); }
  fault.rethrow();
}

/// Calls `use(offset, words, length)` for each block of the pattern until it returns false.
template <typename Use>
void for_each_block(std::size_t bytes, pattern const& from, Use const& use) {
  block words{};
  for (std::size_t offset = 0; offset < bytes; offset += sizeof words) {
    make_words(words, from.seed, (from.first + offset) / word);
    if (!use(offset, words.data(), std::min(sizeof words, bytes - offset))) { return; }
  }
}

void fill_part(std::uintptr_t address, std::size_t bytes, pattern const& from) {
  for_each_block(bytes, from, [=](std::size_t offset, void const* words, std::size_t length) {
    std::memcpy(bytes_at(address) + offset, words, length);
    return true;
  });
}

std::optional<std::size_t> first_unlike_part(std::uintptr_t address, std::size_t bytes,
                                             pattern const& from) {
  std::optional<std::size_t> found;
  for_each_block(bytes, from, [&](std::size_t offset, void const* words, std::size_t length) {
    auto const* const at = bytes_at(address) + offset;
    if (std::memcmp(at, words, length) == 0) { return true; }
    auto const* const expected = static_cast<unsigned char const*>(words);
    auto const differs = std::mismatch(expected, expected + length, at);
    found = offset + static_cast<std::size_t>(differs.first - expected);
    return false;
  });
  return found;
}

void poison_host(std::uintptr_t address, std::size_t bytes) {
  in_parts(bytes, [=](std::size_t, std::size_t begin, std::size_t end) {
    std::memset(bytes_at(address + begin), poison, end - begin);
  });
}

/// The lowest of the places that several threads find.
class lowest_place {
 public:
  explicit lowest_place(std::size_t bytes) : none_{bytes}, found_{bytes} {}
  void note(std::optional<std::size_t> place, std::size_t offset) noexcept {
    if (!place) { return; }
    auto before = found_.load();
    while (offset + *place < before && !found_.compare_exchange_weak(before, offset + *place)) {}
  }
  [[nodiscard]] std::optional<std::size_t> value() const {
    auto const found = found_.load();
    return found == none_ ? std::nullopt : std::optional{found};
  }

 private:
  std::size_t none_;
  std::atomic<std::size_t> found_;
};

/// Calls `use(piece, offset, length)` for the pieces of a slot, with scratch memory for each.
template <typename Use>
void in_pieces(int device, content_check const& what, Use const& use) {
  auto const most = what.scratch.bytes / check_parts / sizeof(block) * sizeof(block);
  if (most == 0) { throw std::invalid_argument("the scratch memory of a check is too small"); }
  in_parts(what.along.bytes, [&](std::size_t part, std::size_t begin, std::size_t end) {
    device_guard const guard{device};
    auto const piece = what.scratch.address + part * most;
    for (auto at = begin; at < end; at += most) { use(piece, at, std::min(most, end - at)); }
  });
}

/// Copies between scratch memory and the slot's device side, in the direction `way`, and waits.
void copy_piece(content_check const& what, direction way, std::uintptr_t piece, std::size_t offset,
                std::size_t bytes) {
  auto const device_side = number(what.along.device_at(what.slot)) + offset;
  copy_blocking(lane{way, piece, device_side, bytes, bytes, 1}, 0);
}

void fill_device_side(int device, content_check const& what) {
  in_pieces(device, what, [&](std::uintptr_t piece, std::size_t offset, std::size_t bytes) {
    fill_part(piece, bytes, {what.seed, offset});
    copy_piece(what, direction::h2d, piece, offset, bytes);
  });
}

std::optional<std::size_t> first_wrong_on_device_side(int device, content_check const& what) {
  lowest_place lowest{what.along.bytes};
  in_pieces(device, what, [&](std::uintptr_t piece, std::size_t offset, std::size_t bytes) {
    std::memset(bytes_at(piece), poison, bytes);
    copy_piece(what, direction::d2h, piece, offset, bytes);
    lowest.note(first_unlike_part(piece, bytes, {what.seed, offset}), offset);
  });
  return lowest.value();
}

std::size_t scratch_bytes(std::size_t bytes) {
  return std::clamp(bytes, check_parts * sizeof(block), most_scratch);
}

/// A check of device memory alone: the host side of its lane is not used.
content_check check_of(std::uintptr_t address, std::size_t bytes, std::uint64_t seed,
                       host_buffer const& scratch) {
  return {lane{direction::h2d, scratch.address(), address, bytes, bytes, 1},
          0,
          seed,
          {scratch.address(), scratch.size()},
          false};
}

}  // namespace

void fill(std::uintptr_t address, std::size_t bytes, std::uint64_t seed, std::size_t first) {
  in_parts(bytes, [=](std::size_t, std::size_t begin, std::size_t end) {
    fill_part(address + begin, end - begin, {seed, first + begin});
  });
}

std::optional<std::size_t> first_unlike(std::uintptr_t address, std::size_t bytes,
                                        std::uint64_t seed, std::size_t first) {
  lowest_place lowest{bytes};
  in_parts(bytes, [&](std::size_t, std::size_t begin, std::size_t end) {
    lowest.note(first_unlike_part(address + begin, end - begin, {seed, first + begin}), begin);
  });
  return lowest.value();
}

void fill_device(int device, std::uintptr_t address, std::size_t bytes, std::uint64_t seed) {
  device_guard const guard{device};
  host_buffer scratch{scratch_bytes(bytes), memory_kind::pinned, device};
  fill_device_side(device, check_of(address, bytes, seed, scratch));
  scratch.close();
}

std::optional<std::size_t> first_unlike_on_device(int device, std::uintptr_t address,
                                                  std::size_t bytes, std::uint64_t seed) {
  device_guard const guard{device};
  host_buffer scratch{scratch_bytes(bytes), memory_kind::pinned, device};
  auto const found = first_wrong_on_device_side(device, check_of(address, bytes, seed, scratch));
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
    fill_device_side(device, what);
    poison_host(number(along.host_at(what.slot)), along.bytes);
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
  return first_wrong_on_device_side(device, what);
}

}  // namespace pyxfer
