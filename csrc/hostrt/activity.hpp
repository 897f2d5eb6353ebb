#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
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

/// Whether anything is recorded. If not, this is the only cost of recording.
[[nodiscard]] inline bool tracing() noexcept {
  return enabled_kinds().load(std::memory_order_relaxed) != 0;
}

[[nodiscard]] inline bool tracing(cupti::activity_kind kind) noexcept {
  return (enabled_kinds().load(std::memory_order_relaxed) & bit_of(kind)) != 0;
}

/// A new id that joins the records of a call and of its work; 0 is not an id.
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

// Each function writes a record if its kind is enabled.

void emit_copy(activity_place const& where, activity_span const& when, copy_sides const& sides,
               std::size_t bytes, std::size_t copies, bool asynchronous) noexcept;
void emit_set(activity_place const& where, activity_span const& when, activity_memory memory,
              std::size_t bytes, bool asynchronous) noexcept;
/// `name` must stay valid.
void emit_kernel(activity_place const& where, activity_span const& when, char const* name) noexcept;
void emit_memory(activity_place const& where, activity_memory memory, void const* address,
                 std::size_t bytes, bool released) noexcept;
void emit_call(cupti::domain of, std::uint32_t callback, activity_span const& when,
               std::uint32_t correlation, int result) noexcept;
/// `name` must stay valid; it is null at the end of a range.
void emit_marker(std::uint32_t id, std::uint32_t flags, char const* name) noexcept;

/// The size of a kind's record in a buffer, as in CUPTI 12.9; 0 for an unknown kind.
[[nodiscard]] std::size_t record_bytes(cupti::activity_kind kind) noexcept;

/// The activity clock at a time of the steady clock. It counts from 1970, like CUPTI's, and a test
/// can skew it.
[[nodiscard]] std::uint64_t activity_time(steady::time_point at) noexcept;

/// Skews the activity clock by `offset_ns`, and from now on by `ns_per_s` more every second.
void skew_activity_clock(std::int64_t offset_ns, double ns_per_s);

/// The buffers that records are written to. They belong to the registered reader.
class activity_buffers {
 public:
  void set_reader(cupti::buffer_requested requested, cupti::buffer_completed completed);
  void append(void const* record, std::size_t bytes) noexcept;
  /// Hands the current buffer over to the reader.
  void flush() noexcept;

  void lose(std::size_t records) noexcept { dropped_ += records; }
  /// The number of records that found no buffer since the last call.
  [[nodiscard]] std::size_t take_dropped() noexcept { return dropped_.exchange(0); }

 private:
  void hand_over() noexcept;
  [[nodiscard]] bool has_room(std::size_t bytes) noexcept;

  // Held while the reader's functions run too: a flush has to wait for a buffer that is handed
  // over.
  std::mutex mutex_;
  cupti::buffer_requested requested_ = nullptr;
  cupti::buffer_completed completed_ = nullptr;
  std::uint8_t* buffer_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t used_ = 0;
  std::atomic<std::size_t> dropped_{0};
};

[[nodiscard]] activity_buffers& buffers();

/// The name of a callback id, as CUPTI reports it; null after the last id. In both domains the ids
/// are the indices of `all_calls` plus 1. In the driver's domain the id of a runtime call names the
/// driver call that it makes.
[[nodiscard]] char const* callback_name(cupti::domain of, std::uint32_t callback);

/// Sets whether calls of that id are recorded, until all calls are enabled again. It has no effect
/// while the domain is disabled, as in the real library once there is a context.
void enable_call(cupti::domain of, std::uint32_t callback, bool enabled);
/// Sets whether all calls of the domain are recorded.
void enable_all_calls(cupti::domain of, bool enabled);

/// Records one call. While it exists, work that this thread queues has the call's correlation.
class recorded_call {
 public:
  explicit recorded_call(std::size_t call) noexcept;
  ~recorded_call();
  recorded_call(recorded_call const&) = delete;
  recorded_call& operator=(recorded_call const&) = delete;
  recorded_call(recorded_call&&) = delete;
  recorded_call& operator=(recorded_call&&) = delete;

  void returned(cudaError_t code) const noexcept;

 private:
  std::size_t call_;
  steady::time_point begin_;
};

}  // namespace pyxfer::hostrt
