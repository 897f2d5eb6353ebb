#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "trace/cupti.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {

/// A bit for each activity kind that is enabled.
inline std::atomic<std::uint64_t>& enabled_kinds() noexcept {
  static std::atomic<std::uint64_t> bits{0};
  return bits;
}

constexpr std::uint64_t bit_of(cupti::activity_kind kind) noexcept {
  return std::uint64_t{1} << static_cast<unsigned int>(kind);
}

/// Whether anything is recorded. All that it costs where nothing is.
[[nodiscard]] inline bool tracing() noexcept {
  return enabled_kinds().load(std::memory_order_relaxed) != 0;
}

[[nodiscard]] inline bool tracing(cupti::activity_kind kind) noexcept {
  return (enabled_kinds().load(std::memory_order_relaxed) & bit_of(kind)) != 0;
}

/// Joins a call with what is done for it; 0 joins nothing.
[[nodiscard]] std::uint32_t next_correlation() noexcept;

struct activity_span {
  steady::time_point begin;
  steady::time_point end;
};

/// Where work was done, and for which call.
struct activity_place {
  int device = 0;
  std::uint32_t stream = 0;
  std::uint32_t correlation = 0;
};

/// By CUpti_ActivityMemoryKind.
enum class activity_memory : std::uint8_t { unknown, pageable, pinned, device };

struct copy_sides {
  std::uint8_t way = 0;  ///< by CUpti_ActivityMemcpyKind
  activity_memory source = activity_memory::unknown;
  activity_memory target = activity_memory::unknown;

  friend bool operator==(copy_sides const& a, copy_sides const& b) noexcept {
    return a.way == b.way && a.source == b.source && a.target == b.target;
  }
};

// Each writes a record if its kind is enabled.

void emit_copy(activity_place const& where, activity_span const& when, copy_sides const& sides,
               std::size_t bytes, std::size_t copies, bool asynchronous) noexcept;
void emit_set(activity_place const& where, activity_span const& when, activity_memory memory,
              std::size_t bytes, bool asynchronous) noexcept;
/// `name` must stay.
void emit_kernel(activity_place const& where, activity_span const& when, char const* name) noexcept;
void emit_memory(activity_place const& where, activity_memory memory, void const* address,
                 std::size_t bytes, bool released) noexcept;
void emit_call(cupti::domain of, std::uint32_t callback, activity_span const& when,
               std::uint32_t correlation, int result) noexcept;
/// `name` must stay; null at the end of a range.
void emit_marker(std::uint32_t id, std::uint32_t flags, char const* name) noexcept;

/// What a kind's record takes in a buffer, as CUPTI 12.9 has it.
[[nodiscard]] std::size_t record_bytes(cupti::activity_kind kind) noexcept;

}  // namespace pyxfer::hostrt
