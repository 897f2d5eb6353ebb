#include "trace/parse.hpp"

#include <array>
#include <string_view>

namespace pyxfer::trace {
namespace {

/// By CUpti_ActivityMemcpyKind. An array of the device is the device's memory: the record's sides
/// tell them apart.
constexpr std::array ways{copy_way::other, copy_way::h2d, copy_way::d2h, copy_way::h2d,
                          copy_way::d2h,   copy_way::d2d, copy_way::d2d, copy_way::d2d,
                          copy_way::d2d,   copy_way::h2h, copy_way::p2p};

/// By CUpti_ActivityMemoryKind; what is statically allocated comes last.
constexpr std::array sides{memory_side::unknown, memory_side::pageable, memory_side::pinned,
                           memory_side::device,  memory_side::array,    memory_side::managed,
                           memory_side::device,  memory_side::managed};

/// By CUpti_ActivityOverheadKind: the library's own from 1 << 16 on.
constexpr std::array<std::string_view, 9> overheads{"unknown",
                                                    "buffer flush",
                                                    "instrumentation",
                                                    "resources",
                                                    "module loading",
                                                    "function loading",
                                                    "full command buffer",
                                                    "buffer request",
                                                    "managed memory setup"};

template <typename Value, std::size_t Size>
Value at(std::array<Value, Size> const& known, std::size_t number) {
  return number < Size ? known[number] : known[0];
}

std::string_view overhead_name(std::uint32_t kind) {
  constexpr std::uint32_t compiler = 1;
  if (kind == compiler) { return "compiler"; }
  return at(overheads, kind >> 16U);
}

template <typename Raw>
Raw const& as(cupti::activity const& raw) {
  return reinterpret_cast<Raw const&>(raw);
}

/// What copies, sets and kernels have in common.
template <typename Raw>
record on_stream(record_kind kind, Raw const& raw) {
  record made;
  made.kind = kind;
  made.start_ns = static_cast<std::int64_t>(raw.start);
  made.end_ns = static_cast<std::int64_t>(raw.end);
  made.correlation = raw.correlation;
  made.stream = raw.stream;
  made.context = raw.context;
  made.device = raw.device;
  return made;
}

template <typename Raw>
record moved(Raw const& raw) {
  auto made = on_stream(record_kind::copy, raw);
  made.nbytes = raw.bytes;
  made.way = at(ways, raw.way);
  made.source = at(sides, raw.source);
  made.target = at(sides, raw.target);
  made.flags = (raw.flags & cupti::asynchronous) != 0 ? flag::asynchronous : 0;
  made.copies = 1;
  return made;
}

record parse_set(cupti::set_activity const& raw) {
  auto made = on_stream(record_kind::set, raw);
  made.nbytes = raw.bytes;
  made.target = at(sides, raw.memory);
  made.flags = (raw.flags & cupti::asynchronous) != 0 ? flag::asynchronous : 0;
  return made;
}

record parse_kernel(cupti::kernel_activity const& raw, name_table& names) {
  auto made = on_stream(record_kind::kernel, raw);
  made.name = names.number_of_kernel(raw.name);
  return made;
}

record parse_memory(cupti::memory_activity const& raw) {
  record made;
  made.kind = record_kind::allocation;
  made.start_ns = static_cast<std::int64_t>(raw.timestamp);
  made.end_ns = made.start_ns;
  made.nbytes = raw.bytes;
  made.correlation = raw.correlation;
  made.stream = raw.stream;
  made.context = raw.context;
  made.device = raw.device;
  made.target = at(sides, raw.memory);
  made.flags = raw.operation == cupti::memory_released ? flag::freed : 0;
  return made;
}

/// An instant begins and ends a range at once.
std::uint32_t mark_flags(std::uint32_t flags) {
  auto const instant = (flags & cupti::marker_instant) != 0;
  auto const begins = instant || (flags & cupti::marker_begin) != 0;
  auto const ends = instant || (flags & cupti::marker_end) != 0;
  return (begins ? flag::begin : 0) | (ends ? flag::end : 0);
}

template <typename Raw>
std::uint32_t thread_of(Raw const& raw) {
  return raw.object_kind == cupti::object_is_thread ? raw.object.thread : 0;
}

record parse_marker(cupti::marker_activity const& raw, name_table& names) {
  record made;
  made.kind = record_kind::mark;
  made.start_ns = static_cast<std::int64_t>(raw.timestamp);
  made.end_ns = made.start_ns;
  made.correlation = raw.id;
  made.thread = thread_of(raw);
  made.name = raw.name == nullptr ? 0 : names.number_of(raw.name);
  made.flags = mark_flags(raw.flags);
  return made;
}

record parse_overhead(cupti::overhead_activity const& raw, name_table& names) {
  record made;
  made.kind = record_kind::overhead;
  made.start_ns = static_cast<std::int64_t>(raw.start);
  made.end_ns = static_cast<std::int64_t>(raw.end);
  made.thread = thread_of(raw);
  made.name = names.number_of(overhead_name(raw.overhead));
  return made;
}

}  // namespace

std::optional<record_kind> kind_of(cupti::activity_kind kind) noexcept {
  switch (kind) {
    case cupti::activity_kind::copy:
    case cupti::activity_kind::peer_copy: return record_kind::copy;
    case cupti::activity_kind::set: return record_kind::set;
    case cupti::activity_kind::kernel: return record_kind::kernel;
    case cupti::activity_kind::runtime_call:
    case cupti::activity_kind::driver_call: return record_kind::call;
    case cupti::activity_kind::memory: return record_kind::allocation;
    case cupti::activity_kind::marker: return record_kind::mark;
    case cupti::activity_kind::overhead: return record_kind::overhead;
    case cupti::activity_kind::invalid: break;
  }
  return std::nullopt;
}

record parser::parse_copy(cupti::activity const& raw) const {
  auto const& copy = as<cupti::copy_activity>(raw);
  auto made = moved(copy);
  if (counts_copies_ && copy.copies > 1) { made.copies = static_cast<std::uint32_t>(copy.copies); }
  return made;
}

std::optional<record> parser::parse_call(cupti::activity const& raw, name_table& names) const {
  auto const& call = as<cupti::call_activity>(raw);
  auto const of_runtime = raw.kind == cupti::activity_kind::runtime_call;
  auto const& name = (of_runtime ? runtime_ : driver_).name_of(call.callback);
  if (name.empty()) { return std::nullopt; }
  record made;
  made.kind = record_kind::call;
  made.start_ns = static_cast<std::int64_t>(call.start);
  made.end_ns = static_cast<std::int64_t>(call.end);
  made.correlation = call.correlation;
  made.thread = call.thread;
  made.name = names.number_of(name);
  made.result = static_cast<std::int32_t>(call.result);
  made.flags = of_runtime ? flag::runtime : 0;
  return made;
}

std::optional<record> parser::parse(cupti::activity const& raw, name_table& names) const {
  switch (raw.kind) {
    case cupti::activity_kind::copy: return parse_copy(raw);
    case cupti::activity_kind::peer_copy: return moved(as<cupti::peer_copy_activity>(raw));
    case cupti::activity_kind::set: return parse_set(as<cupti::set_activity>(raw));
    case cupti::activity_kind::kernel: return parse_kernel(as<cupti::kernel_activity>(raw), names);
    case cupti::activity_kind::runtime_call:
    case cupti::activity_kind::driver_call: return parse_call(raw, names);
    case cupti::activity_kind::memory: return parse_memory(as<cupti::memory_activity>(raw));
    case cupti::activity_kind::marker: return parse_marker(as<cupti::marker_activity>(raw), names);
    case cupti::activity_kind::overhead:
      return parse_overhead(as<cupti::overhead_activity>(raw), names);
    case cupti::activity_kind::invalid: break;
  }
  return std::nullopt;
}

}  // namespace pyxfer::trace
