#pragma once

#include <map>
#include <mutex>

#include "trace/cupti.hpp"

namespace pyxfer::hostrt {

/// The function of CUPTI's of that name, over what the host runtime records; null where it has
/// none.
[[nodiscard]] void* activity_function(char const* symbol) noexcept;

/// The subscriber there is, and what tests order it to be told.
class activity_refusals {
 public:
  /// What a subscription answers; with success the place is taken.
  [[nodiscard]] cupti::result subscribe();
  /// False where nobody was subscribed.
  [[nodiscard]] bool unsubscribe();
  [[nodiscard]] cupti::result enable(cupti::activity_kind kind) const;

  void refuse_subscription(cupti::result code);
  void refuse_kind(cupti::activity_kind kind, cupti::result code);
  void set_other_subscriber(bool there);
  /// Forgets the orders; who is subscribed stays.
  void reset();

 private:
  mutable std::mutex mutex_;
  bool subscribed_ = false;
  bool other_ = false;
  cupti::result subscription_ = cupti::result::success;
  std::map<cupti::activity_kind, cupti::result> kinds_;
};

[[nodiscard]] activity_refusals& refusals();

/// "CUPTI_ERROR_..."; null for a code that is none.
[[nodiscard]] char const* result_name(cupti::result code) noexcept;

/// Takes back what control.hpp orders of the records.
void reset_activity();

}  // namespace pyxfer::hostrt
