#include "trace/subscription.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/process.hpp"
#include "trace/error.hpp"
#include "trace/receiver.hpp"

#include <utility>

namespace pyxfer::trace {
namespace {

void call_nothing(void* /*user*/, cupti::domain /*from*/, std::uint32_t /*callback*/,
                  void const* /*data*/) {}

}  // namespace

subscription::subscription(cupti::functions const& call) : call_{call} {
  if (!claim()) {
    throw trace_unavailable_error(
        "pyxfer is tracing already in this process, and one trace at a time is all that there can "
        "be: end the other first");
  }
  auto const code = call_.subscribe(&subscriber_, call_nothing, nullptr);
  if (code != cupti::result::success) {
    release();
    throw refusal(call_, "cuptiSubscribe", code);
  }
  try {
    use_native_thread_ids();
  } catch (...) {
    release_noexcept([this] { close(); });
    throw;
  }
}

subscription::~subscription() {
  release_noexcept([this] { close(); });
}

void subscription::close() {
  auto* const held = std::exchange(subscriber_, nullptr);
  if (held == nullptr || !same_process()) { return; }
  auto const restored = call_.set_thread_id_type(thread_ids_before_);
  auto const code = call_.unsubscribe(held);
  release();
  check(call_, "cuptiUnsubscribe", code);
  check(call_, "cuptiSetThreadIdType", restored);
}

void subscription::use_native_thread_ids() {
  check(call_, "cuptiGetThreadIdType", call_.get_thread_id_type(&thread_ids_before_));
  check(call_, "cuptiSetThreadIdType", call_.set_thread_id_type(cupti::native_thread_ids));
}

}  // namespace pyxfer::trace
