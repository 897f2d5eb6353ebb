#pragma once

#include "cuda/error.hpp"
#include "cuda/stream.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

namespace pyxfer {

using host_clock = std::chrono::steady_clock;

[[nodiscard]] inline double seconds_between(host_clock::time_point from,
                                            host_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// The thread that waits for a blocking operation calls it every tenth of a second. If it returns
/// true, the operation ends as if it was cancelled. Empty if nothing can interrupt the operation.
using interruption = std::function<bool()>;
inline constexpr double interruption_period_s = 0.1;

/// How long a wait may take, and a flag that ends it early. Copies share the flag.
class patience {
 public:
  explicit patience(double seconds)
      : patience{seconds, std::make_shared<std::atomic<bool>>(false)} {}
  patience(double seconds, std::shared_ptr<std::atomic<bool>> cancelled)
      : seconds_{seconds}, cancelled_{std::move(cancelled)} {}

  [[nodiscard]] double seconds() const noexcept { return seconds_; }
  [[nodiscard]] bool cancelled() const noexcept {
    return cancelled_->load(std::memory_order_relaxed);
  }

 private:
  double seconds_;
  std::shared_ptr<std::atomic<bool>> cancelled_;
};

/// Pauses between two checks of a condition. At first it only yields the core, because a sleep
/// would show in the times of short copies.
class polling {
 public:
  polling() = default;
  polling(double spin_s, std::chrono::microseconds nap) : spin_s_{spin_s}, nap_{nap} {}

  /// Returns whether it has slept.
  bool pause() const;  // NOLINT(modernize-use-nodiscard): most callers only pause
  [[nodiscard]] double waited_s() const { return seconds_between(begin_, host_clock::now()); }

 private:
  /// Longer than any copy that the host's clock times to the microsecond.
  double spin_s_{0.02};
  std::chrono::microseconds nap_{100};
  host_clock::time_point begin_{host_clock::now()};
};

/// Polls until `ready()`. After sleeping, every tenth of a second, it asks `stopped()`, and throws
/// `cancelled_error` with that text if it is true.
template <typename Ready, typename Stopped>
void poll_until(Ready const& ready, Stopped const& stopped, char const* text) {
  polling const rest;
  auto asked = host_clock::now();
  while (!ready()) {
    if (!rest.pause() || seconds_between(asked, host_clock::now()) < interruption_period_s) {
      continue;
    }
    asked = host_clock::now();
    if (stopped()) { throw cancelled_error(text); }
  }
}

/// Polls until the device has passed `until`; false after `seconds`, or when `cancelled` is set. It
/// never blocks inside the driver, because that could not be ended.
[[nodiscard]] bool wait_for(event const& until, double seconds,
                            std::atomic<bool> const* cancelled = nullptr);

/// The same, but throws `timeout_error` or `cancelled_error`. `what` completes "The device did not
/// finish ...".
void wait(event const& until, patience const& limit, char const* what);

}  // namespace pyxfer
