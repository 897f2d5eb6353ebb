#include "activity_library.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "activity.hpp"
#include "activity_buffers.hpp"
#include "activity_calls.hpp"
#include "activity_clock.hpp"
#include "activity_refusals.hpp"
#include "calls.hpp"
#include "configuration.hpp"
#include "trace/cupti_records.hpp"

namespace pyxfer::hostrt {
namespace {

using cupti::activity_kind;
using cupti::domain;
using cupti::result;

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

/// Those without records of their own are fine too: there are no peers here, and no overhead.
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

/// Of all types there are only native ids here.
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

struct symbol_entry {
  std::string_view name;
  void* function;
};

auto const& symbols() {
  static std::array const table{
      symbol_entry{"cuptiGetVersion", reinterpret_cast<void*>(get_version)},
      symbol_entry{"cuptiGetResultString", reinterpret_cast<void*>(get_result_string)},
      symbol_entry{"cuptiSubscribe", reinterpret_cast<void*>(subscribe)},
      symbol_entry{"cuptiUnsubscribe", reinterpret_cast<void*>(unsubscribe)},
      symbol_entry{"cuptiActivityRegisterCallbacks", reinterpret_cast<void*>(register_callbacks)},
      symbol_entry{"cuptiActivityEnable", reinterpret_cast<void*>(enable)},
      symbol_entry{"cuptiActivityDisable", reinterpret_cast<void*>(disable)},
      symbol_entry{"cuptiActivityFlushAll", reinterpret_cast<void*>(flush_all)},
      symbol_entry{"cuptiActivityGetNextRecord", reinterpret_cast<void*>(get_next_record)},
      symbol_entry{"cuptiActivityGetNumDroppedRecords", reinterpret_cast<void*>(get_dropped)},
      symbol_entry{"cuptiGetTimestamp", reinterpret_cast<void*>(get_timestamp)},
      symbol_entry{"cuptiGetCallbackName", reinterpret_cast<void*>(get_callback_name)},
      symbol_entry{"cuptiGetThreadIdType", reinterpret_cast<void*>(get_thread_id_type)},
      symbol_entry{"cuptiSetThreadIdType", reinterpret_cast<void*>(set_thread_id_type)},
      symbol_entry{"cuptiActivityEnableRuntimeApi", reinterpret_cast<void*>(enable_runtime_api)},
      symbol_entry{"cuptiActivityEnableDriverApi", reinterpret_cast<void*>(enable_driver_api)},
  };
  return table;
}

}  // namespace

void* activity_function(char const* symbol) noexcept {
  auto const& known = symbols();
  auto const* const found = std::find_if(known.begin(), known.end(),
                                         [&](auto const& each) { return each.name == symbol; });
  return found == known.end() ? nullptr : found->function;
}

}  // namespace pyxfer::hostrt
