#include "trace/enabling.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/process.hpp"
#include "trace/error.hpp"

#include <optional>

namespace pyxfer::trace {
namespace {

using cupti::activity_kind;

/// The one that is enabled for a kind of ours; calls have two.
activity_kind cuptis(record_kind kind) {
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
    if (last && kinds_.empty() && calls_.empty()) { throw refusal{*last}; }
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
  enable(cuptis(kind));
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

void enabling::enable_calls(cupti::domain of, parser const& reader) {
  if (enable_each_call(of, reader)) { return; }
  // All of them then; what does not matter is left out when it is read.
  enable(of == cupti::domain::runtime ? activity_kind::runtime_call : activity_kind::driver_call);
}

bool enabling::enable_each_call(cupti::domain of, parser const& reader) {
  auto* const choose =
      of == cupti::domain::runtime ? call_.enable_runtime_api : call_.enable_driver_api;
  if (choose == nullptr) { return false; }
  auto const wanted = reader.calls_of(of).that_matter();
  calls_.reserve(calls_.size() + wanted.size());
  auto const before = calls_.size();
  for (auto const id : wanted) {
    if (choose(id, 1) == cupti::result::success) { calls_.emplace_back(of, id); }
  }
  return calls_.size() > before;
}

void enabling::close() {
  auto const kinds = std::exchange(kinds_, {});
  auto const calls = std::exchange(calls_, {});
  if (!same_process()) { return; }
  auto first = cupti::result::success;
  auto const tried = [&](cupti::result code) {
    if (first == cupti::result::success) { first = code; }
  };
  for (auto const& [of, id] : calls) {
    tried(
        (of == cupti::domain::runtime ? call_.enable_runtime_api : call_.enable_driver_api)(id, 0));
  }
  for (auto const kind : kinds) { tried(call_.disable(kind)); }
  check(call_, "cuptiActivityDisable", first);
}

}  // namespace pyxfer::trace
