#include "activity_refusals.hpp"

#include <utility>

namespace pyxfer::hostrt {

using cupti::result;

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

result activity_refusals::enable(cupti::activity_kind kind) const {
  std::scoped_lock const lock{mutex_};
  auto const found = kinds_.find(kind);
  return found == kinds_.end() ? result::success : found->second;
}

void activity_refusals::refuse_subscription(result code) {
  std::scoped_lock const lock{mutex_};
  subscription_ = code;
}

void activity_refusals::refuse_kind(cupti::activity_kind kind, result code) {
  std::scoped_lock const lock{mutex_};
  kinds_[kind] = code;
}

void activity_refusals::set_other_subscriber(bool there) {
  std::scoped_lock const lock{mutex_};
  other_ = there;
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

}  // namespace pyxfer::hostrt
