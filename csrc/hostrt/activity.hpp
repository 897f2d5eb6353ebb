#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "trace/cupti_records.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {

/// The function of CUPTI with that name, for the records of the host runtime; null if there is
/// none.
[[nodiscard]] void* activity_function(char const* symbol) noexcept;

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

/// The size of a kind's record in a buffer, as in CUPTI 12.9; 0 for an unknown kind.
[[nodiscard]] std::size_t record_bytes(cupti::activity_kind kind) noexcept;

/// The activity clock at a time of the steady clock. It counts from 1970, like CUPTI's, and a test
/// can skew it.
[[nodiscard]] std::uint64_t activity_time(steady::time_point at) noexcept;

/// Writes a record of `bytes` into a buffer of the tracer.
void push_record(void const* record, std::size_t bytes, cupti::activity_kind kind) noexcept;

/// The same if its kind is enabled.
template <typename Raw>
void push(Raw const& raw) noexcept {
  if (tracing(raw.kind)) push_record(&raw, sizeof raw, raw.kind);
}

/// A record of work on a device. `kind` is that of `Raw`.
template <typename Raw>
Raw work_record(cupti::activity_kind kind, activity_place const& where, activity_span const& when) {
  Raw raw{};
  raw.kind = kind;
  raw.start = activity_time(when.begin);
  raw.end = activity_time(when.end);
  raw.device = static_cast<std::uint32_t>(where.device);
  raw.context = raw.device + 1;
  raw.stream = where.stream;
  raw.correlation = where.correlation;
  return raw;
}

/// `name` must stay valid.
void emit_kernel(activity_place const& where, activity_span const& when, char const* name) noexcept;

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

/// Undoes what tests have ordered about records with control.hpp.
void reset_activity();

}  // namespace pyxfer::hostrt
