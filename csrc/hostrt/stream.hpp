#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "waiting.hpp"

namespace pyxfer::hostrt {

/// A value for a handle that no other stream or event ever has, so that a stale one is recognised.
/// It is never dereferenced, and lies above the handles of the default streams.
inline std::uintptr_t next_handle() noexcept {
  static std::atomic<std::uintptr_t> last{0x1000};
  return last += 0x10;
}

class stream;

/// A place in a stream: everything queued there up to `ticket`.
struct stream_point {
  std::shared_ptr<stream> on;
  std::uint64_t ticket = 0;
  /// When that was done by the clock of `on`; valid once `reached`. Null before a stream's first
  /// work.
  std::shared_ptr<steady::time_point const> ended = nullptr;

  /// A place that needs no waiting.
  [[nodiscard]] static stream_point passed_now(std::shared_ptr<stream> on);

  [[nodiscard]] bool reached() const;
  /// Returns once the place is reached or the device is lost.
  void wait() const;
};

/// When a piece of work begins.
struct work_start {
  /// The loss epoch in which the work was queued.
  std::uint64_t epoch = 0;
  /// The time at which a device could begin: the work before it is done by the streams' clocks, and
  /// the call was made. The worker's thread may come here later.
  steady::time_point ready;
};

/// Work of a stream. Returns when it ended by the stream's clock.
using stream_work = std::function<steady::time_point(work_start const&)>;

/// An in-order queue and the worker thread that empties it.
///
/// A stream has a clock of its own, which is never ahead of the real one. Modelled work takes
/// exactly its modelled time by that clock, however late a busy machine lets the worker's thread
/// run; what takes real time, such as a host function, takes it by that clock too.
class stream : public std::enable_shared_from_this<stream> {
 public:
  /// The id that the real runtime gives the legacy default stream.
  static constexpr std::uint32_t legacy_id = 7;

  /// More commands than this the driver does not queue: the call waits (about 1,000 on real
  /// devices).
  static constexpr std::uint64_t most_queued = 1024;

  stream(int device, bool blocking, std::uint32_t id) noexcept
      : device_{device}, blocking_{blocking}, id_{id} {}

  /// The worker's loop: ends when the stream is retired and its queue is empty.
  void run();

  /// Waits while the queue is full.
  void await_room();

  /// Queues `work` behind everything queued before and behind all of `after`.
  stream_point enqueue(stream_work work, std::vector<stream_point> after);

  /// No more work will come.
  void retire();

  /// Lets every waiter look again whether it still has to wait.
  void wake();

  [[nodiscard]] stream_point last_point();
  [[nodiscard]] bool idle() const noexcept { return enqueued_ == completed_; }
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] bool is_legacy() const noexcept { return id_ == legacy_id; }
  /// What records call it.
  [[nodiscard]] std::uint32_t id() const noexcept { return id_; }
  /// Whether it synchronises with the legacy default stream.
  [[nodiscard]] bool blocking() const noexcept { return blocking_; }

 private:
  friend struct stream_point;

  struct task {
    stream_work work;
    std::vector<stream_point> after;
    std::uint64_t epoch = 0;
    steady::time_point called;
    std::shared_ptr<steady::time_point> ended;
  };

  [[nodiscard]] bool take(task& next);
  void perform(task const& next);
  void finish();

  int const device_;
  bool const blocking_;
  std::uint32_t const id_;
  std::mutex mutex_;
  std::condition_variable work_came_;
  std::condition_variable work_done_;
  std::deque<task> queue_;
  /// Of the last work queued.
  std::shared_ptr<steady::time_point const> last_ended_;
  /// The stream's clock; the worker's alone.
  steady::time_point clock_;
  std::atomic<std::uint64_t> enqueued_{0};
  std::atomic<std::uint64_t> completed_{0};
  std::atomic<bool> retired_{false};
  bool worker_sleeps_ = false;
  int waiters_ = 0;
};

}  // namespace pyxfer::hostrt
