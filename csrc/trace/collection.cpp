#include "trace/collection.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/process.hpp"
#include "trace/error.hpp"

#include <optional>
#include <utility>

namespace pyxfer::trace {
namespace {

using cupti::activity_kind;

/// CUPTI's kind for one of ours. Calls have two, of which this returns the runtime's.
activity_kind cupti_kind_of(record_kind kind) {
  switch (kind) {
    case record_kind::copy: return activity_kind::copy;
    case record_kind::set: return activity_kind::set;
    case record_kind::kernel: return activity_kind::kernel;
    case record_kind::allocation: return activity_kind::memory;
    case record_kind::mark: return activity_kind::marker;
    case record_kind::overhead: return activity_kind::overhead;
    case record_kind::call: break;
  }
  return activity_kind::runtime_call;
}

/// No callback is enabled, but a subscription needs a function.
void ignore_callback(void* /*user*/, cupti::domain /*from*/, std::uint32_t /*callback*/,
                     void const* /*data*/) {}

}  // namespace

collection::collection(library const& from, std::set<record_kind> const& kinds,
                       std::shared_ptr<gathering> into)
    : call_{from.call} {
  subscribe();
  try {
    check(call_, "cuptiGetThreadIdType", call_.get_thread_id_type(&thread_ids_before_));
    check(call_, "cuptiSetThreadIdType", call_.set_thread_id_type(cupti::native_thread_ids));
    receive(from.version, std::move(into));
    enable_all(kinds);
  } catch (...) {
    release_noexcept([this] { close(); });
    throw;
  }
}

collection::~collection() {
  release_noexcept([this] { close(); });
}

void collection::subscribe() {
  if (!claim()) {
    throw trace_unavailable_error(
        "pyxfer is already tracing in this process, and only one trace can run at a time: end the "
        "other one first");
  }
  auto const code = call_.subscribe(&subscriber_, ignore_callback, nullptr);
  if (code != cupti::result::success) {
    release();
    throw refusal(call_, "cuptiSubscribe", code);
  }
}

void collection::unsubscribe(cupti::subscriber held) {
  auto const restored = call_.set_thread_id_type(thread_ids_before_);
  auto const code = call_.unsubscribe(held);
  release();
  check(call_, "cuptiUnsubscribe", code);
  check(call_, "cuptiSetThreadIdType", restored);
}

void collection::receive(std::uint32_t version, std::shared_ptr<gathering> into) {
  // The parser reads the calls' names, which a library may not have before a subscription.
  taking_ = std::make_shared<intake const>(intake{call_, parser{version, call_}, std::move(into)});
  attach(taking_);
  check(call_, "cuptiActivityRegisterCallbacks",
        call_.register_callbacks(lend_buffer, receive_buffer));
  static_cast<void>(take_dropped());  // those of an earlier profiler
}

void collection::enable_all(std::set<record_kind> const& kinds) {
  std::optional<refusal> last;
  for (auto const kind : kinds) {
    try {
      enable(kind);
    } catch (refusal const& refused) {
      if (kind == record_kind::copy) { throw; }
      refused_.emplace(word_of(kind), refused.what());
      last = refused;
    }
  }
  if (last && kinds_.empty()) { throw refusal{*last}; }
}

void collection::enable(record_kind kind) {
  if (kind == record_kind::call) {
    enable_calls(cupti::domain::runtime);
    enable_calls(cupti::domain::driver);
    return;
  }
  enable(cupti_kind_of(kind));
  if (kind != record_kind::copy) { return; }
  try {
    enable(activity_kind::peer_copy);
  } catch (refusal const& refused) { refused_.emplace("peer copies", refused.what()); }
}

void collection::enable(activity_kind kind) {
  kinds_.reserve(kinds_.size() + 1);
  check(call_, "cuptiActivityEnable", call_.enable(kind));
  kinds_.push_back(kind);
}

/// Enables all calls of a domain, and disables the unwanted ones again: once there is a context,
/// CUPTI does not record a call that is enabled alone.
void collection::enable_calls(cupti::domain of) {
  auto const runtime = of == cupti::domain::runtime;
  enable(runtime ? activity_kind::runtime_call : activity_kind::driver_call);
  auto* const choose = runtime ? call_.enable_runtime_api : call_.enable_driver_api;
  if (choose == nullptr) { return; }
  // The parser skips a call that cannot be disabled.
  for (auto const id : taking_->reader.calls_of(of).unwanted_ids()) {
    static_cast<void>(choose(id, 0));
  }
}

void collection::disable_all() {
  auto first = cupti::result::success;
  for (auto const kind : std::exchange(kinds_, {})) {
    auto const code = call_.disable(kind);
    if (first == cupti::result::success) { first = code; }
  }
  check(call_, "cuptiActivityDisable", first);
}

std::size_t collection::take_dropped() const {
  std::size_t dropped = 0;
  auto const code = call_.get_dropped(nullptr, 0, &dropped);
  return code == cupti::result::success ? dropped : 0;
}

void collection::flush() {
  auto const code = call_.flush_all(cupti::flush_forced);
  taking_->into->lose(take_dropped());
  check(call_, "cuptiActivityFlushAll", code);
}

void collection::close() {
  auto* const held = std::exchange(subscriber_, nullptr);
  if (held == nullptr || !same_process()) { return; }
  closing all;
  all.run([this] { disable_all(); });  // first, or what is recorded after the flush would be lost
  if (taking_) {
    all.run([this] { flush(); });
  }
  all.run([this, held] { unsubscribe(held); });
  all.finish();
}

}  // namespace pyxfer::trace
