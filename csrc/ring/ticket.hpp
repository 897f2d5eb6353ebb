#pragma once

#include "ring/staged.hpp"

#include <future>
#include <utility>

namespace pyxfer {

/// A transfer that goes on by itself. It goes on too when its ticket is dropped.
class ticket {
 public:
  explicit ticket(std::shared_future<staged> ends) : ends_{std::move(ends)} {}

  /// Whether it has ended, well or not.
  [[nodiscard]] bool done() const;
  /// Waits for so long at most; throws the transfer's error, or `timeout_error` where it goes on.
  [[nodiscard]] staged result(double seconds) const;

 private:
  std::shared_future<staged> ends_;
};

}  // namespace pyxfer
