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

}  // namespace

enabling::enabling(cupti::functions const& call, parser const& reader,
                   std::set<record_kind> const& kinds)
    : call_{call} {
  try {
    std::optional<refusal> last;
    for (auto const kind : kinds) {
      try {
        enable(kind, reader);
      } catch (refusal const& refused) {
        if (kind == record_kind::copy) { throw; }
        refused_.emplace(word_of(kind), refused.what());
        last = refused;
      }
    }
    if (last && kinds_.empty()) { throw refusal{*last}; }
  } catch (...) {
    release_noexcept([this] { close(); });
    throw;
  }
}

enabling::~enabling() {
  release_noexcept([this] { close(); });
}

void enabling::enable(record_kind kind, parser const& reader) {
  if (kind == record_kind::call) {
    enable_calls(cupti::domain::runtime, reader);
    enable_calls(cupti::domain::driver, reader);
    return;
  }
  enable(cupti_kind_of(kind));
  if (kind != record_kind::copy) { return; }
  try {
    enable(activity_kind::peer_copy);
  } catch (refusal const& refused) { refused_.emplace("peer copies", refused.what()); }
}

void enabling::enable(activity_kind kind) {
  kinds_.reserve(kinds_.size() + 1);
  check(call_, "cuptiActivityEnable", call_.enable(kind));
  kinds_.push_back(kind);
}

/// Enables all calls of a domain, and disables the unwanted ones again: once there is a context,
/// CUPTI does not record a call that is enabled alone.
void enabling::enable_calls(cupti::domain of, parser const& reader) {
  auto const runtime = of == cupti::domain::runtime;
  enable(runtime ? activity_kind::runtime_call : activity_kind::driver_call);
  auto* const choose = runtime ? call_.enable_runtime_api : call_.enable_driver_api;
  if (choose == nullptr) { return; }
  // The parser skips a call that cannot be disabled.
  for (auto const id : reader.calls_of(of).unwanted_ids()) { static_cast<void>(choose(id, 0)); }
}

void enabling::close() {
  auto const kinds = std::exchange(kinds_, {});
  if (!same_process()) { return; }
  auto first = cupti::result::success;
  for (auto const kind : kinds) {
    auto const code = call_.disable(kind);
    if (first == cupti::result::success) { first = code; }
  }
  check(call_, "cuptiActivityDisable", first);
}

collection::collection(library const& from, std::set<record_kind> const& kinds,
                       std::shared_ptr<gathering> into)
    : call_{from.call},
      subscribed_{call_},
      taking_{receive(from.version, std::move(into))},
      enabled_{call_, taking_->reader, kinds} {}

std::shared_ptr<intake const> collection::receive(std::uint32_t version,
                                                  std::shared_ptr<gathering> into) const {
  // The parser reads the calls' names, which a library may not have before a subscription.
  auto taking =
      std::make_shared<intake const>(intake{call_, parser{version, call_}, std::move(into)});
  attach(taking);
  check(call_, "cuptiActivityRegisterCallbacks",
        call_.register_callbacks(lend_buffer, receive_buffer));
  static_cast<void>(take_dropped());  // those of an earlier profiler
  return taking;
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
  closing all;
  all.close(enabled_);  // first, or what is recorded after the flush would be lost
  all.run([this] { flush(); });
  all.close(subscribed_);
  all.finish();
}

}  // namespace pyxfer::trace
