#include "activity.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "entry.hpp"
#include "injection.hpp"
#include "trace/cupti_records.hpp"

namespace pyxfer::hostrt {

// --- the clock -----------------------------------------------------------------------------------

namespace {

std::int64_t nanoseconds(std::chrono::nanoseconds span) noexcept { return span.count(); }

struct skewed_clock {
  std::mutex mutex;
  std::int64_t offset_ns = 0;
  double ns_per_s = 0;
  steady::time_point since;
  std::int64_t const steady_to_1970_ns =
      nanoseconds(std::chrono::system_clock::now().time_since_epoch()) -
      nanoseconds(steady::now().time_since_epoch());
};

skewed_clock& the_clock() {
  static auto& clock = *new skewed_clock;
  return clock;
}

}  // namespace

std::uint64_t activity_time(steady::time_point at) noexcept {
  auto& clock = the_clock();
  std::scoped_lock const lock{clock.mutex};
  auto const moved_s = std::chrono::duration<double>(at - clock.since).count();
  auto const drift = clock.ns_per_s == 0 ? 0 : std::llround(moved_s * clock.ns_per_s);
  return static_cast<std::uint64_t>(nanoseconds(at.time_since_epoch()) + clock.steady_to_1970_ns +
                                    clock.offset_ns + drift);
}

void skew_activity_clock(std::int64_t offset_ns, double ns_per_s) {
  auto& clock = the_clock();
  std::scoped_lock const lock{clock.mutex};
  clock.offset_ns = offset_ns;
  clock.ns_per_s = ns_per_s;
  clock.since = steady::now();
}

// --- the buffers of the reader -------------------------------------------------------------------

void activity_buffers::set_reader(cupti::buffer_requested requested,
                                  cupti::buffer_completed completed) {
  std::scoped_lock const lock{mutex_};
  requested_ = requested;
  completed_ = completed;
}

void activity_buffers::append(void const* record, std::size_t bytes) noexcept {
  std::scoped_lock const lock{mutex_};
  if (!has_room(bytes)) {
    ++dropped_;
    return;
  }
  std::memcpy(buffer_ + used_, record, bytes);
  used_ += bytes;
}

void activity_buffers::flush() noexcept {
  std::scoped_lock const lock{mutex_};
  hand_over();
}

bool activity_buffers::has_room(std::size_t bytes) noexcept {
  if (requested_ == nullptr) return false;
  if (buffer_ != nullptr && used_ + bytes > bytes_) hand_over();
  if (buffer_ == nullptr) {
    std::size_t records = 0;
    requested_(&buffer_, &bytes_, &records);
  }
  return buffer_ != nullptr && used_ + bytes <= bytes_;
}

void activity_buffers::hand_over() noexcept {
  auto* const buffer = std::exchange(buffer_, nullptr);
  auto const used = std::exchange(used_, 0);
  if (buffer != nullptr) completed_(nullptr, 0, buffer, bytes_, used);
}

activity_buffers& buffers() {
  static auto& the_buffers = *new activity_buffers;
  return the_buffers;
}

// --- the records ---------------------------------------------------------------------------------

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

/// CUPTI's records are longer than the fields that are declared here; the rest is filled with 0.
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
  auto const* const found =
      std::find_if(known_bytes.begin(), known_bytes.end(),
                   [&](kind_bytes const& known) { return known.kind == kind; });
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

// --- the records of calls ------------------------------------------------------------------------

namespace {

using cupti::domain;

struct nested_call {
  std::string_view runtime;
  char const* driver;
};

/// The driver calls that the real runtime makes.
constexpr std::array nested_calls{
    nested_call{"cudaDeviceSynchronize", "cuCtxSynchronize"},
    nested_call{"cudaMalloc", "cuMemAlloc_v2"},
    nested_call{"cudaFree", "cuMemFree_v2"},
    nested_call{"cudaHostAlloc", "cuMemHostAlloc"},
    nested_call{"cudaFreeHost", "cuMemFreeHost"},
    nested_call{"cudaHostRegister", "cuMemHostRegister_v2"},
    nested_call{"cudaHostUnregister", "cuMemHostUnregister"},
    nested_call{"cudaMemset", "cuMemsetD8_v2"},
    nested_call{"cudaMemsetAsync", "cuMemsetD8Async"},
    nested_call{"cudaMemcpy", "cuMemcpy"},
    nested_call{"cudaMemcpyAsync", "cuMemcpyAsync"},
    nested_call{"cudaMemcpyBatchAsync", "cuMemcpyBatchAsync"},
    nested_call{"cudaStreamSynchronize", "cuStreamSynchronize"},
    nested_call{"cudaLaunchHostFunc", "cuLaunchHostFunc"},
};

constexpr std::size_t call_count = all_calls.size();

constexpr bool is_of_runtime(std::string_view name) { return name.substr(0, 4) == "cuda"; }

constexpr char const* nested_in(std::string_view name) {
  for (auto const& nested : nested_calls) {
    if (nested.runtime == name) return nested.driver;
  }
  return nullptr;
}

using name_list = std::array<std::string, call_count>;

name_list names_of(domain of) {
  name_list names;
  for (std::size_t call = 0; call < call_count; ++call) {
    auto const name = all_calls[call].name;
    auto const* const nested = nested_in(name);
    auto& made = names[call];
    made = "unused";
    if (of == domain::runtime && is_of_runtime(name)) made = std::string{name} + "_v3020";
    if (of == domain::driver && !is_of_runtime(name)) made = name;
    if (of == domain::driver && nested != nullptr) made = nested;
  }
  return names;
}

/// Enabling a domain enables all of its calls. Each call can then be disabled.
struct calls_of_domain {
  std::array<std::atomic<bool>, call_count> off{};

  void switch_all_on() noexcept {
    for (auto& one : off) one = false;
  }
};

calls_of_domain& calls_of(domain of) {
  static auto& runtime = *new calls_of_domain;
  static auto& driver = *new calls_of_domain;
  return of == domain::runtime ? runtime : driver;
}

cupti::activity_kind kind_of(domain of) noexcept {
  return of == domain::runtime ? cupti::activity_kind::runtime_call
                               : cupti::activity_kind::driver_call;
}

bool is_recorded(domain of, std::size_t call) noexcept {
  return tracing(kind_of(of)) && !calls_of(of).off[call].load(std::memory_order_relaxed);
}

}  // namespace

char const* callback_name(domain of, std::uint32_t callback) {
  static auto const& runtime = *new name_list{names_of(domain::runtime)};
  static auto const& driver = *new name_list{names_of(domain::driver)};
  if (callback == 0) return "INVALID";
  if (callback > call_count) return nullptr;
  return (of == domain::runtime ? runtime : driver)[callback - 1].c_str();
}

void enable_call(domain of, std::uint32_t callback, bool enable) {
  // In the real library it has no effect if the kind is disabled and there is a context.
  if (tracing(kind_of(of))) calls_of(of).off.at(callback - 1) = !enable;
}

void enable_all_calls(domain of, bool enable) {
  if (enable) {
    calls_of(of).switch_all_on();
    enabled_kinds() |= bit_of(kind_of(of));
  } else {
    enabled_kinds() &= ~bit_of(kind_of(of));
  }
}

recorded_call::recorded_call(std::size_t call) noexcept : call_{call}, begin_{steady::now()} {
  this_thread().correlation = next_correlation();
}

recorded_call::~recorded_call() { this_thread().correlation = 0; }

void recorded_call::returned(cudaError_t code) const noexcept {
  activity_span const when{begin_, steady::now()};
  auto const id = static_cast<std::uint32_t>(call_ + 1);
  auto const name = all_calls.at(call_).name;
  auto const correlation = this_thread().correlation;
  auto const result = static_cast<int>(code);
  auto const in_driver = !is_of_runtime(name) || nested_in(name) != nullptr;
  if (in_driver && is_recorded(domain::driver, call_)) {
    emit_call(domain::driver, id, when, correlation, result);
  }
  if (is_of_runtime(name) && is_recorded(domain::runtime, call_)) {
    emit_call(domain::runtime, id, when, correlation, result);
  }
}

}  // namespace pyxfer::hostrt
