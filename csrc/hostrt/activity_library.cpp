#include "activity_library.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "activity.hpp"
#include "control.hpp"
#include "device.hpp"
#include "entry.hpp"
#include "injection.hpp"
#include "stream_registry.hpp"
#include "trace/cupti_records.hpp"

namespace pyxfer::hostrt {

using cupti::activity_kind;
using cupti::domain;
using cupti::result;

// --- what the library refuses --------------------------------------------------------------------

result activity_refusals::subscribe() {
  std::scoped_lock const lock{mutex_};
  if (subscription_ != result::success) return subscription_;
  if (other_ || subscribed_) return result::multiple_subscribers;
  subscribed_ = true;
  return result::success;
}

bool activity_refusals::unsubscribe() {
  std::scoped_lock const lock{mutex_};
  return std::exchange(subscribed_, false);
}

result activity_refusals::enable(activity_kind kind) const {
  std::scoped_lock const lock{mutex_};
  auto const found = kinds_.find(kind);
  return found == kinds_.end() ? result::success : found->second;
}

void activity_refusals::refuse_subscription(result code) {
  std::scoped_lock const lock{mutex_};
  subscription_ = code;
}

void activity_refusals::refuse_kind(activity_kind kind, result code) {
  std::scoped_lock const lock{mutex_};
  kinds_[kind] = code;
}

void activity_refusals::set_other_subscriber(bool subscribed) {
  std::scoped_lock const lock{mutex_};
  other_ = subscribed;
}

void activity_refusals::reset() {
  std::scoped_lock const lock{mutex_};
  other_ = false;
  subscription_ = result::success;
  kinds_.clear();
}

activity_refusals& refusals() {
  static auto& the_refusals = *new activity_refusals;
  return the_refusals;
}

char const* result_name(result code) noexcept {
  switch (code) {
    case result::success: return "CUPTI_SUCCESS";
    case result::invalid_parameter: return "CUPTI_ERROR_INVALID_PARAMETER";
    case result::invalid_operation: return "CUPTI_ERROR_INVALID_OPERATION";
    case result::limit_reached: return "CUPTI_ERROR_MAX_LIMIT_REACHED";
    case result::not_compatible: return "CUPTI_ERROR_NOT_COMPATIBLE";
    case result::not_initialized: return "CUPTI_ERROR_NOT_INITIALIZED";
    case result::invalid_kind: return "CUPTI_ERROR_INVALID_KIND";
    case result::insufficient_privileges: return "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES";
    case result::multiple_subscribers: return "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
    case result::virtualized_insufficient_privileges:
      return "CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES";
    case result::unknown: return "CUPTI_ERROR_UNKNOWN";
  }
  return nullptr;
}

// --- what tests control --------------------------------------------------------------------------

namespace {

/// Copies a name that is never freed, like that of a kernel in a module that stays loaded.
char const* never_freed(std::string const& name) {
  static auto& mutex = *new std::mutex;
  static auto& names = *new std::set<std::string>;
  std::scoped_lock const lock{mutex};
  return names.insert(name).first->c_str();
}

struct open_mark {
  std::string name;
  std::uint32_t id;
};

std::vector<open_mark>& this_threads_marks() {
  thread_local std::vector<open_mark> open;
  return open;
}

result result_code(int code) {
  constexpr int most = 999;
  if (code < 0 || code > most) {
    throw std::invalid_argument{std::to_string(code) + " is not a result of CUPTI"};
  }
  return static_cast<result>(code);
}

std::uint32_t end_mark(std::string const& name) {
  auto& open = this_threads_marks();
  auto const found = std::find_if(open.rbegin(), open.rend(), [&](open_mark const& candidate) {
    return candidate.name == name;
  });
  if (found == open.rend()) {
    throw std::invalid_argument{"no range '" + name + "' is open in this thread"};
  }
  auto const id = found->id;
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
  streams().enqueue(on, [=](work_start const& start) {
    auto const end = start.ready + as_duration(seconds);
    auto const lost = [&] { return !is_current(start.epoch); };
    pause_until(end, lost);
    if (where.correlation != 0 && !lost()) emit_kernel(where, {start.ready, end}, shown);
    return end;
  });
}

void mark(std::string const& name, bool begin) {
  if (!begin) {
    emit_marker(end_mark(name), cupti::marker_end, nullptr);
    return;
  }
  auto const id = next_correlation();
  this_threads_marks().push_back({name, id});
  emit_marker(id, cupti::marker_begin, never_freed(name));
}

void skew_clock(std::int64_t ns_offset, double ns_per_s) {
  skew_activity_clock(ns_offset, ns_per_s);
}

void refuse_activity(int code) { refusals().refuse_subscription(result_code(code)); }

void refuse_kind(int kind, int code) {
  refusals().refuse_kind(static_cast<activity_kind>(kind), result_code(code));
}

void other_subscriber(bool subscribed) { refusals().set_other_subscriber(subscribed); }

void lose_records(std::size_t count) { buffers().lose(count); }

void reset_activity() {
  refusals().reset();
  skew_activity_clock(0, 0);
  this_threads_marks().clear();
  static_cast<void>(buffers().take_dropped());
}

// --- the library's functions ---------------------------------------------------------------------

namespace {

constexpr std::uint32_t pretended_version = 28;  // CUDA 12.9's

result get_version(std::uint32_t* version) {
  *version = pretended_version;
  return result::success;
}

result get_result_string(result code, char const** text) {
  *text = result_name(code);
  return *text == nullptr ? result::invalid_parameter : result::success;
}

result subscribe(cupti::subscriber* made, cupti::callback /*called*/, void* /*user*/) {
  configure_from_environment();
  auto const refused = refusals().subscribe();
  if (refused == result::success) *made = reinterpret_cast<cupti::subscriber>(std::uintptr_t{1});
  return refused;
}

result unsubscribe(cupti::subscriber /*made*/) {
  return refusals().unsubscribe() ? result::success : result::invalid_parameter;
}

result register_callbacks(cupti::buffer_requested requested, cupti::buffer_completed completed) {
  if (requested == nullptr || completed == nullptr) return result::invalid_parameter;
  buffers().set_reader(requested, completed);
  return result::success;
}

result switch_kind(activity_kind kind, bool on) {
  if (kind == activity_kind::runtime_call) {
    enable_all_calls(domain::runtime, on);
  } else if (kind == activity_kind::driver_call) {
    enable_all_calls(domain::driver, on);
  } else if (on) {
    enabled_kinds() |= bit_of(kind);
  } else {
    enabled_kinds() &= ~bit_of(kind);
  }
  return result::success;
}

/// Peer copies and overheads are known kinds too, although this runtime never records them.
bool is_known(activity_kind kind) {
  return record_bytes(kind) != 0 || kind == activity_kind::peer_copy ||
         kind == activity_kind::overhead;
}

result enable(activity_kind kind) {
  if (!is_known(kind)) return result::invalid_kind;
  auto const refused = refusals().enable(kind);
  return refused == result::success ? switch_kind(kind, true) : refused;
}

result disable(activity_kind kind) {
  return is_known(kind) ? switch_kind(kind, false) : result::invalid_kind;
}

result flush_all(std::uint32_t /*flags*/) {
  buffers().flush();
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
  *dropped = buffers().take_dropped();
  return result::success;
}

result get_timestamp(std::uint64_t* timestamp) {
  *timestamp = activity_time(steady::now());
  return result::success;
}

result get_callback_name(domain of, std::uint32_t callback, char const** name) {
  *name = callback_name(of, callback);
  return *name == nullptr ? result::invalid_parameter : result::success;
}

std::atomic<std::uint32_t> thread_id_type{0};

result get_thread_id_type(std::uint32_t* type) {
  *type = thread_id_type;
  return result::success;
}

/// It stores the type, but records always have native ids.
result set_thread_id_type(std::uint32_t type) {
  if (type > cupti::native_thread_ids) return result::invalid_parameter;
  thread_id_type = type;
  return result::success;
}

result enable_api(domain of, std::uint32_t callback, std::uint8_t enabled) {
  if (callback == 0 || callback > all_calls.size()) return result::invalid_parameter;
  enable_call(of, callback, enabled != 0);
  return result::success;
}

result enable_runtime_api(std::uint32_t callback, std::uint8_t enabled) {
  return enable_api(domain::runtime, callback, enabled);
}

result enable_driver_api(std::uint32_t callback, std::uint8_t enabled) {
  return enable_api(domain::driver, callback, enabled);
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
