#include "activity.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "activity_buffers.hpp"
#include "activity_clock.hpp"
#include "trace/cupti_records.hpp"

namespace pyxfer::hostrt {
namespace {

using cupti::activity_kind;

struct kind_bytes {
  activity_kind kind;
  std::size_t bytes;
};

constexpr std::array known_bytes{
    kind_bytes{activity_kind::copy, 96},        kind_bytes{activity_kind::set, 88},
    kind_bytes{activity_kind::driver_call, 40}, kind_bytes{activity_kind::runtime_call, 40},
    kind_bytes{activity_kind::kernel, 208},     kind_bytes{activity_kind::marker, 56},
    kind_bytes{activity_kind::memory, 128},
};
constexpr std::size_t longest_record = 208;

std::uint32_t native_thread() noexcept {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): glibc has gettid() only from 2.30 on
  static thread_local auto const id = static_cast<std::uint32_t>(::syscall(SYS_gettid));
  return id;
}

std::uint32_t this_process() noexcept { return static_cast<std::uint32_t>(::getpid()); }

/// Behind what is known of a record CUPTI's has more, which is 0 here.
template <typename Raw>
void write(Raw const& raw) noexcept {
  static_assert(sizeof raw <= longest_record);
  std::array<std::byte, longest_record> whole{};
  std::memcpy(whole.data(), &raw, sizeof raw);
  buffers().append(whole.data(), record_bytes(raw.kind));
}

template <typename Raw>
void place(Raw& raw, activity_place const& where, activity_span const& when) noexcept {
  raw.start = activity_time(when.begin);
  raw.end = activity_time(when.end);
  raw.device = static_cast<std::uint32_t>(where.device);
  raw.context = raw.device + 1;
  raw.stream = where.stream;
  raw.correlation = where.correlation;
}

}  // namespace

std::uint32_t next_correlation() noexcept {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

std::size_t record_bytes(activity_kind kind) noexcept {
  auto const* const found = std::find_if(known_bytes.begin(), known_bytes.end(),
                                         [&](kind_bytes const& each) { return each.kind == kind; });
  return found == known_bytes.end() ? 0 : found->bytes;
}

void emit_copy(activity_place const& where, activity_span const& when, copy_sides const& sides,
               std::size_t bytes, std::size_t copies, bool asynchronous) noexcept {
  if (!tracing(activity_kind::copy)) return;
  cupti::copy_activity raw{};
  raw.kind = activity_kind::copy;
  raw.way = sides.way;
  raw.source = static_cast<std::uint8_t>(sides.source);
  raw.target = static_cast<std::uint8_t>(sides.target);
  raw.flags = asynchronous ? cupti::asynchronous : 0;
  raw.bytes = bytes;
  raw.copies = copies;
  place(raw, where, when);
  write(raw);
}

void emit_set(activity_place const& where, activity_span const& when, activity_memory memory,
              std::size_t bytes, bool asynchronous) noexcept {
  if (!tracing(activity_kind::set)) return;
  cupti::set_activity raw{};
  raw.kind = activity_kind::set;
  raw.bytes = bytes;
  raw.memory = static_cast<std::uint16_t>(memory);
  raw.flags = asynchronous ? cupti::asynchronous : 0;
  place(raw, where, when);
  write(raw);
}

void emit_kernel(activity_place const& where, activity_span const& when,
                 char const* name) noexcept {
  if (!tracing(activity_kind::kernel)) return;
  cupti::kernel_activity raw{};
  raw.kind = activity_kind::kernel;
  raw.name = name;
  place(raw, where, when);
  write(raw);
}

void emit_memory(activity_place const& where, activity_memory memory, void const* address,
                 std::size_t bytes, bool released) noexcept {
  if (!tracing(activity_kind::memory)) return;
  cupti::memory_activity raw{};
  raw.kind = activity_kind::memory;
  raw.operation = released ? cupti::memory_released : cupti::memory_allocated;
  raw.memory = static_cast<std::uint32_t>(memory);
  raw.correlation = where.correlation;
  raw.address = reinterpret_cast<std::uintptr_t>(address);
  raw.bytes = bytes;
  raw.timestamp = activity_time(steady::now());
  raw.process = this_process();
  raw.device = static_cast<std::uint32_t>(where.device);
  raw.context = raw.device + 1;
  raw.stream = where.stream;
  write(raw);
}

void emit_call(cupti::domain of, std::uint32_t callback, activity_span const& when,
               std::uint32_t correlation, int result) noexcept {
  cupti::call_activity raw{};
  raw.kind =
      of == cupti::domain::runtime ? activity_kind::runtime_call : activity_kind::driver_call;
  raw.callback = callback;
  raw.start = activity_time(when.begin);
  raw.end = activity_time(when.end);
  raw.process = this_process();
  raw.thread = native_thread();
  raw.correlation = correlation;
  raw.result = static_cast<std::uint32_t>(result);
  write(raw);
}

void emit_marker(std::uint32_t id, std::uint32_t flags, char const* name) noexcept {
  if (!tracing(activity_kind::marker)) return;
  cupti::marker_activity raw{};
  raw.kind = activity_kind::marker;
  raw.flags = flags;
  raw.timestamp = activity_time(steady::now());
  raw.id = id;
  raw.object_kind = cupti::object_is_thread;
  raw.object = {this_process(), native_thread(), 0};
  raw.name = name;
  write(raw);
}

}  // namespace pyxfer::hostrt
