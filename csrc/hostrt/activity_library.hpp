#pragma once

#include <map>
#include <mutex>

#include "trace/cupti.hpp"

namespace pyxfer::hostrt {

/// The function of CUPTI with that name, for the records of the host runtime; null if there is
/// none.
[[nodiscard]] void* activity_function(char const* symbol) noexcept;

/// Whether CUPTI has a subscriber, and the errors that tests have ordered for its functions.
class activity_refusals {
 public:
  /// The result of a subscription. After success there is a subscriber.
  [[nodiscard]] cupti::result subscribe();
  /// False if there was no subscriber.
  [[nodiscard]] bool unsubscribe();
  [[nodiscard]] cupti::result enable(cupti::activity_kind kind) const;

  void refuse_subscription(cupti::result code);
  void refuse_kind(cupti::activity_kind kind, cupti::result code);
  void set_other_subscriber(bool subscribed);
  /// Removes the ordered errors, but not the subscription.
  void reset();

 private:
  mutable std::mutex mutex_;
  bool subscribed_ = false;
  bool other_ = false;
  cupti::result subscription_ = cupti::result::success;
  std::map<cupti::activity_kind, cupti::result> kinds_;
};

[[nodiscard]] activity_refusals& refusals();

/// A name such as "CUPTI_ERROR_INVALID_KIND"; null for an unknown code.
[[nodiscard]] char const* result_name(cupti::result code) noexcept;

/// Undoes what tests have ordered about records with control.hpp.
void reset_activity();

}  // namespace pyxfer::hostrt
