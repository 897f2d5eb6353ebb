#include "activity.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "control.hpp"
#include "device.hpp"
#include "entry.hpp"
#include "injection.hpp"
#include "stream_registry.hpp"

namespace pyxfer::hostrt {
namespace {

using cupti::activity_kind;
using cupti::domain;
using cupti::result;

// --- the clock -----------------------------------------------------------------------------------

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

// --- the buffers ---------------------------------------------------------------------------------

std::atomic<cupti::buffer_requested> buffer_requested{nullptr};
std::atomic<cupti::buffer_completed> buffer_completed{nullptr};
std::atomic<std::size_t> dropped_records{0};
std::atomic<bool> hands_over_at_once{false};

/// The buffer that some threads write their records to. Like CUPTI's, buffers of several threads
/// are handed over at any time, also at the same time.
class shared_buffer {
 public:
  void append(void const* record, std::size_t bytes) {
    std::scoped_lock const lock{mutex_};
    if (buffer_ != nullptr && used_ + bytes > bytes_) hand_over();
    std::size_t records = 0;
    auto const request = buffer_requested.load();
    if (buffer_ == nullptr && request != nullptr) request(&buffer_, &bytes_, &records);
    if (buffer_ == nullptr || used_ + bytes > bytes_) {
      ++dropped_records;
      return;
    }
    std::memcpy(buffer_ + used_, record, bytes);
    used_ += bytes;
    if (hands_over_at_once) hand_over();
  }

  void flush() {
    std::scoped_lock const lock{mutex_};
    hand_over();
  }

 private:
  void hand_over() {
    auto* const buffer = std::exchange(buffer_, nullptr);
    auto const used = std::exchange(used_, 0);
    if (buffer != nullptr) buffer_completed.load()(nullptr, 0, buffer, bytes_, used);
  }

  // Held while the tracer's functions run too: a flush waits for a buffer that is handed over.
  std::mutex mutex_;
  std::uint8_t* buffer_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t used_ = 0;
};

auto& buffers() {
  static auto& all = *new std::array<shared_buffer, 8>;
  return all;
}

shared_buffer& this_threads_buffer() {
  static std::atomic<std::size_t> threads{0};
  thread_local auto const number = threads++;
  return buffers().at(number % buffers().size());
}

constexpr std::array<std::pair<activity_kind, std::size_t>, 7> known_bytes{{
    {activity_kind::copy, 96},
    {activity_kind::set, 88},
    {activity_kind::driver_call, 40},
    {activity_kind::runtime_call, 40},
    {activity_kind::kernel, 208},
    {activity_kind::marker, 56},
    {activity_kind::memory, 128},
}};

std::uint32_t native_thread() noexcept {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): glibc has gettid() only from 2.30 on
  static thread_local auto const id = static_cast<std::uint32_t>(::syscall(SYS_gettid));
  return id;
}

std::uint32_t this_process() noexcept { return static_cast<std::uint32_t>(::getpid()); }

// --- the calls -----------------------------------------------------------------------------------

activity_kind kind_of(domain of) noexcept {
  return of == domain::runtime ? activity_kind::runtime_call : activity_kind::driver_call;
}

/// The name of a call in a domain; empty if the call is not made there. Some runtime calls make the
/// driver's call of the same name.
std::string name_in(domain of, std::size_t call) {
  auto const name = all_calls.at(call).name;
  auto const begins_with = [&](std::string_view part) {
    return name.substr(0, part.size()) == part;
  };
  if (of == domain::runtime) return begins_with("cuda") ? std::string{name} + "_v3020" : "";
  if (!begins_with("cuda")) return std::string{name};
  if (name == "cudaDeviceSynchronize") return "cuCtxSynchronize";
  auto const nested = begins_with("cudaMemcpy") || begins_with("cudaStreamSync");
  return nested ? "cu" + std::string{name.substr(4)} : "";
}

/// The calls of a domain. The ids are the indices of `all_calls` plus 1.
struct calls_of_domain {
  explicit calls_of_domain(domain of) {
    for (std::size_t call = 0; call < all_calls.size(); ++call) names[call] = name_in(of, call);
  }
  /// Enabling the domain enables all of its calls. Each call can then be disabled.
  std::array<std::atomic<bool>, all_calls.size()> disabled{};
  std::array<std::string, all_calls.size()> names;
};

calls_of_domain& calls_of(domain of) {
  static auto& runtime = *new calls_of_domain{domain::runtime};
  static auto& driver = *new calls_of_domain{domain::driver};
  return of == domain::runtime ? runtime : driver;
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

std::uint32_t next_correlation() noexcept {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

std::size_t record_bytes(activity_kind kind) noexcept {
  auto const* const found = std::find_if(known_bytes.begin(), known_bytes.end(),
                                         [&](auto const& known) { return known.first == kind; });
  return found == known_bytes.end() ? 0 : found->second;
}

void push_record(void const* record, std::size_t bytes, activity_kind kind) noexcept {
  // CUPTI's records are longer than the fields that are declared here; the rest is filled with 0.
  std::array<std::byte, 208> whole{};
  std::memcpy(whole.data(), record, bytes);
  this_threads_buffer().append(whole.data(), record_bytes(kind));
}

void emit_kernel(activity_place const& where, activity_span const& when,
                 char const* name) noexcept {
  auto raw = work_record<cupti::kernel_activity>(activity_kind::kernel, where, when);
  raw.name = name;
  push(raw);
}

recorded_call::recorded_call(std::size_t call) noexcept : call_{call}, begin_{steady::now()} {
  this_thread().correlation = next_correlation();
}

recorded_call::~recorded_call() { this_thread().correlation = 0; }

void recorded_call::returned(cudaError_t code) const noexcept {
  cupti::call_activity raw{};
  raw.callback = static_cast<std::uint32_t>(call_ + 1);
  raw.start = activity_time(begin_);
  raw.end = activity_time(steady::now());
  raw.process = this_process();
  raw.thread = native_thread();
  raw.correlation = this_thread().correlation;
  raw.result = static_cast<std::uint32_t>(code);
  for (auto const of : {domain::driver, domain::runtime}) {
    auto const& calls = calls_of(of);
    if (calls.names.at(call_).empty() || calls.disabled.at(call_)) continue;
    raw.kind = kind_of(of);
    push(raw);
  }
}

// --- what tests control --------------------------------------------------------------------------

namespace {

struct subscriptions {
  std::mutex mutex;
  bool subscribed = false;
  bool other = false;
  result refusal = result::success;
  std::map<activity_kind, result> refused_kinds;
};

subscriptions& the_subscriptions() {
  static auto& all = *new subscriptions;
  return all;
}

/// Copies a name that is never freed, like that of a kernel in a module that stays loaded.
char const* never_freed(std::string const& name) {
  static auto& mutex = *new std::mutex;
  static auto& names = *new std::set<std::string>;
  std::scoped_lock const lock{mutex};
  return names.insert(name).first->c_str();
}

/// The names and ids of the ranges that this thread has begun.
auto& this_threads_marks() {
  thread_local std::vector<std::pair<std::string, std::uint32_t>> open;
  return open;
}

result result_code(int code) {
  if (code >= 0 && code < 1000) return static_cast<result>(code);
  throw std::invalid_argument{std::to_string(code) + " is not a result of CUPTI"};
}

std::uint32_t end_mark(std::string const& name) {
  auto& open = this_threads_marks();
  auto const found = std::find_if(open.rbegin(), open.rend(),
                                  [&](auto const& candidate) { return candidate.first == name; });
  if (found == open.rend()) {
    throw std::invalid_argument{"no range '" + name + "' is open in this thread"};
  }
  auto const id = found->second;
  open.erase(std::next(found).base());
  return id;
}

}  // namespace

void kernel(std::string const& name, double seconds, std::uintptr_t stream) {
  auto const on = streams().find(reinterpret_cast<cudaStream_t>(stream));
  if (!on) throw std::invalid_argument{std::to_string(stream) + " is not a stream"};
  if (!(seconds >= 0)) throw std::invalid_argument{"the duration of a kernel is negative"};
  auto const* const shown = never_freed(name);
  activity_place const where{on->device(), on->id(), tracing() ? next_correlation() : 0};
  auto run = [=](work_start const& start) {
    auto const end = start.ready + as_duration(seconds);
    auto const lost = [&] { return !is_current(start.epoch); };
    pause_until(end, lost);
    if (where.correlation != 0 && !lost()) emit_kernel(where, {start.ready, end}, shown);
    return end;
  };
  streams().enqueue(on, std::move(run), {}, engine::kernels);
}

void mark(std::string const& name, bool begin) {
  cupti::marker_activity raw{};
  raw.kind = activity_kind::marker;
  raw.flags = begin ? cupti::marker_begin : cupti::marker_end;
  raw.id = begin ? next_correlation() : end_mark(name);
  raw.name = begin ? never_freed(name) : nullptr;
  raw.timestamp = activity_time(steady::now());
  raw.object_kind = cupti::object_is_thread;
  raw.object = {this_process(), native_thread(), 0};
  if (begin) this_threads_marks().emplace_back(name, raw.id);
  push(raw);
}

void skew_clock(std::int64_t ns_offset, double ns_per_s) {
  auto& clock = the_clock();
  std::scoped_lock const lock{clock.mutex};
  clock.offset_ns = ns_offset;
  clock.ns_per_s = ns_per_s;
  clock.since = steady::now();
}

void refuse_activity(int code) {
  std::scoped_lock const lock{the_subscriptions().mutex};
  the_subscriptions().refusal = result_code(code);
}

void refuse_kind(int kind, int code) {
  std::scoped_lock const lock{the_subscriptions().mutex};
  the_subscriptions().refused_kinds[static_cast<activity_kind>(kind)] = result_code(code);
}

void other_subscriber(bool subscribed) {
  std::scoped_lock const lock{the_subscriptions().mutex};
  the_subscriptions().other = subscribed;
}

void lose_records(std::size_t count) { dropped_records += count; }

void hand_over_at_once(bool on) { hands_over_at_once = on; }

void reset_activity() {
  auto& all = the_subscriptions();
  std::scoped_lock const lock{all.mutex};
  all.other = false;
  all.refusal = result::success;
  all.refused_kinds.clear();
  skew_clock(0, 0);
  this_threads_marks().clear();
  dropped_records = 0;
  hands_over_at_once = false;
}

// --- the library's functions ---------------------------------------------------------------------

namespace {

result get_version(std::uint32_t* version) {
  *version = 28;  // CUDA 12.9's
  return result::success;
}

result get_result_string(result code, char const** text) {
  switch (code) {
    case result::not_initialized: *text = "CUPTI_ERROR_NOT_INITIALIZED"; break;
    case result::invalid_operation: *text = "CUPTI_ERROR_INVALID_OPERATION"; break;
    case result::invalid_kind: *text = "CUPTI_ERROR_INVALID_KIND"; break;
    case result::insufficient_privileges: *text = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"; break;
    case result::multiple_subscribers:
      *text = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
      break;
    case result::unknown: *text = "CUPTI_ERROR_UNKNOWN"; break;
    default: return result::invalid_parameter;
  }
  return result::success;
}

result subscribe(cupti::subscriber* made, cupti::callback /*called*/, void* /*user*/) {
  configure_from_environment();
  auto& all = the_subscriptions();
  std::scoped_lock const lock{all.mutex};
  if (all.refusal != result::success) return all.refusal;
  if (all.other || std::exchange(all.subscribed, true)) return result::multiple_subscribers;
  *made = reinterpret_cast<cupti::subscriber>(std::uintptr_t{1});
  return result::success;
}

result unsubscribe(cupti::subscriber /*made*/) {
  auto& all = the_subscriptions();
  std::scoped_lock const lock{all.mutex};
  return std::exchange(all.subscribed, false) ? result::success : result::invalid_parameter;
}

result register_callbacks(cupti::buffer_requested requested, cupti::buffer_completed completed) {
  if (requested == nullptr || completed == nullptr) return result::invalid_parameter;
  buffer_completed = completed;
  buffer_requested = requested;
  return result::success;
}

/// Peer copies and overheads are known kinds too, although this runtime never records them.
bool is_known(activity_kind kind) {
  return record_bytes(kind) != 0 || kind == activity_kind::peer_copy ||
         kind == activity_kind::overhead;
}

result enable(activity_kind kind) {
  if (!is_known(kind)) return result::invalid_kind;
  {
    auto& all = the_subscriptions();
    std::scoped_lock const lock{all.mutex};
    auto const refused = all.refused_kinds.find(kind);
    if (refused != all.refused_kinds.end()) return refused->second;
  }
  for (auto const of : {domain::driver, domain::runtime}) {
    if (kind != kind_of(of)) continue;
    for (auto& each : calls_of(of).disabled) each = false;
  }
  enabled_kinds() |= bit_of(kind);
  return result::success;
}

result disable(activity_kind kind) {
  if (!is_known(kind)) return result::invalid_kind;
  enabled_kinds() &= ~bit_of(kind);
  return result::success;
}

result flush_all(std::uint32_t /*flags*/) {
  for (auto& each : buffers()) each.flush();
  return result::success;
}

result get_next_record(std::uint8_t* buffer, std::size_t valid_bytes, cupti::activity** record) {
  auto* next = buffer;
  if (*record != nullptr) {
    next = reinterpret_cast<std::uint8_t*>(*record) + record_bytes((*record)->kind);
  }
  if (next >= buffer + valid_bytes) return result::limit_reached;
  *record = reinterpret_cast<cupti::activity*>(next);
  return record_bytes((*record)->kind) == 0 ? result::invalid_kind : result::success;
}

result get_dropped(CUcontext /*context*/, std::uint32_t /*stream*/, std::size_t* dropped) {
  *dropped = dropped_records.exchange(0);
  return result::success;
}

result get_timestamp(std::uint64_t* timestamp) {
  *timestamp = activity_time(steady::now());
  return result::success;
}

result get_callback_name(domain of, std::uint32_t callback, char const** name) {
  *name = callback == 0 ? "INVALID" : nullptr;
  if (callback > all_calls.size()) return result::invalid_parameter;
  if (callback != 0) *name = calls_of(of).names[callback - 1].c_str();
  return result::success;
}

/// It is stored, but records always have native ids.
std::atomic<std::uint32_t> thread_id_type{0};

result get_thread_id_type(std::uint32_t* type) {
  *type = thread_id_type;
  return result::success;
}

result set_thread_id_type(std::uint32_t type) {
  thread_id_type = type;
  return result::success;
}

result enable_api(domain of, std::uint32_t callback, bool enabled) {
  if (callback == 0 || callback > all_calls.size()) return result::invalid_parameter;
  // In the real library it has no effect if the kind is disabled and there is a context.
  if (tracing(kind_of(of))) calls_of(of).disabled[callback - 1] = !enabled;
  return result::success;
}

result enable_runtime_api(std::uint32_t callback, std::uint8_t enabled) {
  return enable_api(domain::runtime, callback, enabled != 0);
}

result enable_driver_api(std::uint32_t callback, std::uint8_t enabled) {
  return enable_api(domain::driver, callback, enabled != 0);
}

auto const& symbols() {
  static std::array const table{
      exported{"cuptiGetVersion", get_version},
      exported{"cuptiGetResultString", get_result_string},
      exported{"cuptiSubscribe", subscribe},
      exported{"cuptiUnsubscribe", unsubscribe},
      exported{"cuptiActivityRegisterCallbacks", register_callbacks},
      exported{"cuptiActivityEnable", enable},
      exported{"cuptiActivityDisable", disable},
      exported{"cuptiActivityFlushAll", flush_all},
      exported{"cuptiActivityGetNextRecord", get_next_record},
      exported{"cuptiActivityGetNumDroppedRecords", get_dropped},
      exported{"cuptiGetTimestamp", get_timestamp},
      exported{"cuptiGetCallbackName", get_callback_name},
      exported{"cuptiGetThreadIdType", get_thread_id_type},
      exported{"cuptiSetThreadIdType", set_thread_id_type},
      exported{"cuptiActivityEnableRuntimeApi", enable_runtime_api},
      exported{"cuptiActivityEnableDriverApi", enable_driver_api},
  };
  return table;
}

}  // namespace

void* activity_function(char const* symbol) noexcept { return find_exported(symbols(), symbol); }

}  // namespace pyxfer::hostrt
