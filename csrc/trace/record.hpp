#pragma once

#include "trace/mapped.hpp"

#include <cstddef>
#include <cstdint>

namespace pyxfer::trace {

// The numbers are those of pyxfer/tracing/records.py.

enum class record_kind : std::uint8_t { copy = 1, set, kernel, call, allocation, mark, overhead };

enum class copy_way : std::uint8_t { other, h2d, d2h, d2d, h2h, p2p };

enum class memory_side : std::uint8_t { unknown, pageable, pinned, device, array, managed };

namespace flag {

inline constexpr std::uint32_t asynchronous = 1;
inline constexpr std::uint32_t runtime = 2;
inline constexpr std::uint32_t freed = 4;
inline constexpr std::uint32_t begin = 8;
inline constexpr std::uint32_t end = 16;

}  // namespace flag

/// One row of the table that Python gets. Times are the activity clock's until they are converted,
/// and 0 where the device gave none. A set and an allocation have their memory in `target`.
struct record {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  std::uint64_t nbytes = 0;
  std::uint32_t correlation = 0;
  std::uint32_t stream = 0;
  std::uint32_t context = 0;
  std::uint32_t device = 0;
  std::uint32_t thread = 0;
  std::uint32_t name = 0;
  std::uint32_t copies = 0;
  std::int32_t result = 0;
  record_kind kind = record_kind::copy;
  copy_way way{};
  memory_side source{};
  memory_side target{};
  std::uint32_t flags = 0;
};

static_assert(sizeof(record) == 64, "pyxfer/tracing/records.py reads rows of 64 bytes");

using record_table = mapped_vector<record>;

}  // namespace pyxfer::trace
