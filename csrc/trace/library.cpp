#include "trace/library.hpp"

#include "trace/error.hpp"

#include <dlfcn.h>

#include <stdexcept>
#include <utility>

namespace pyxfer::trace {
namespace {

/// The dynamic linker's last error, without the library's name, with which it usually begins.
std::string linker_error(std::string const& name) {
  auto const* const error = ::dlerror();
  std::string const text{error == nullptr ? "it cannot be opened" : error};
  auto const begin = name + ": ";
  return text.rfind(begin, 0) == 0 ? text.substr(begin.size()) : text;
}

symbol_finder open_shared(std::string const& name) {
  // Never closed: CUPTI cannot be unloaded after it was registered with the driver.
  void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) { throw std::runtime_error(linker_error(name)); }
  return [handle](char const* symbol) { return ::dlsym(handle, symbol); };
}

template <typename Function>
void find_optional(symbol_finder const& finder, char const* symbol, Function& function) {
  function = reinterpret_cast<Function>(finder(symbol));
}

template <typename Function>
void find(symbol_finder const& finder, char const* symbol, Function& function) {
  find_optional(finder, symbol, function);
  if (function == nullptr) {
    throw std::runtime_error(std::string{"it has no "} + symbol + ", so it is not CUPTI");
  }
}

cupti::functions functions_of(symbol_finder const& finder) {
  cupti::functions call{};
  find(finder, "cuptiGetVersion", call.get_version);
  find(finder, "cuptiGetResultString", call.get_result_string);
  find(finder, "cuptiSubscribe", call.subscribe);
  find(finder, "cuptiUnsubscribe", call.unsubscribe);
  find(finder, "cuptiActivityRegisterCallbacks", call.register_callbacks);
  find(finder, "cuptiActivityEnable", call.enable);
  find(finder, "cuptiActivityDisable", call.disable);
  find(finder, "cuptiActivityFlushAll", call.flush_all);
  find(finder, "cuptiActivityGetNextRecord", call.get_next_record);
  find(finder, "cuptiActivityGetNumDroppedRecords", call.get_dropped);
  find(finder, "cuptiGetTimestamp", call.get_timestamp);
  find(finder, "cuptiGetCallbackName", call.get_callback_name);
  find(finder, "cuptiGetThreadIdType", call.get_thread_id_type);
  find(finder, "cuptiSetThreadIdType", call.set_thread_id_type);
  find_optional(finder, "cuptiActivityEnableRuntimeApi", call.enable_runtime_api);
  find_optional(finder, "cuptiActivityEnableDriverApi", call.enable_driver_api);
  return call;
}

std::uint32_t version_of(cupti::functions const& call) {
  std::uint32_t version = 0;
  check(call, "cuptiGetVersion", call.get_version(&version));
  if (version < cupti::oldest_version || version > cupti::newest_version) {
    throw std::runtime_error("its version " + std::to_string(version) +
                             " is not supported by this pyxfer: the CUPTI of CUDA 12 or 13 is");
  }
  return version;
}

}  // namespace

candidate shared_library(std::string const& name) {
  return {name, [name] { return open_shared(name); }};
}

library open(candidate const& wanted) {
  auto const call = functions_of(wanted.open());
  return {wanted.name, version_of(call), call};
}

library_choice::library_choice(std::vector<candidate> candidates)
    : candidates_{std::move(candidates)} {
  if (!open_from(0)) { give_up(); }
}

void library_choice::refuse(std::string const& reason) {
  reasons_.push_back(used_.name + ": " + reason);
  if (!open_from(at_ + 1)) { give_up(); }
}

bool library_choice::open_from(std::size_t first) {
  for (auto i = first; i < candidates_.size(); ++i) {
    try {
      used_ = open(candidates_[i]);
      at_ = i;
      return true;
    } catch (refusal const& refused) {
      reasons_.push_back(candidates_[i].name + ": " + advice_for(refused));
    } catch (std::runtime_error const& fault) {
      reasons_.push_back(candidates_[i].name + ": " + fault.what());
    }
  }
  return false;
}

void library_choice::give_up() {
  std::string text = "no CUPTI library can be used here: ";
  if (reasons_.empty()) { text += "none was named"; }
  for (auto const& reason : reasons_) {
    text += (&reason == &reasons_.front() ? "" : "; ") + reason;
  }
  reasons_.clear();
  static_cast<void>(open_from(0));
  throw trace_unavailable_error(text);
}

}  // namespace pyxfer::trace
