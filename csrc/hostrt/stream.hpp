#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "device.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {

/// A unique value for the handle of a stream or event, so that a stale handle is recognised. It is
/// never dereferenced, and is above the handles of the default streams.
inline std::uintptr_t next_handle() noexcept {
  static std::atomic<std::uintptr_t> last{0x1000};
  return last += 0x10;
}

class stream;

/// A place in a stream: after all work that was queued up to `ticket`.
struct stream_point {
  std::shared_ptr<stream> on;
  std::uint64_t ticket = 0;
  /// When that work ended by the clock of `on`; valid after `reached`. Null before a stream's first
  /// work.
  std::shared_ptr<steady::time_point const> ended = nullptr;

  /// A place that is reached now.
  [[nodiscard]] static stream_point passed_now(std::shared_ptr<stream> on);

  [[nodiscard]] bool reached() const;
  /// Returns when the place is reached or the device is lost.
  void wait() const;
};

/// The part of a device that does a piece of work. Work of no engine, such as a host function or a
/// wait, stands in no hardware queue.
enum class engine { none, kernels, h2d, d2h, between_devices };

/// The place of a piece of work in a hardware queue: it begins after the one in front of it.
struct queue_place {
  std::shared_ptr<queue_place> in_front;
  std::atomic<bool> begun{false};
};

/// When a piece of work begins.
struct work_start {
  /// In which the work was queued.
  loss_epoch epoch;
  /// When a device would begin: after the call, and after the earlier work by the streams' clocks.
  /// The worker's thread may run later than that.
  steady::time_point ready;
};

/// Work of a stream. Returns the time of the stream's clock at which it ended.
using stream_work = std::function<steady::time_point(work_start const&)>;

/// An in-order queue and the worker thread that empties it.
///
/// A stream has its own clock, which is never ahead of the real one. By that clock modelled work
/// takes exactly its modelled time, even if a busy machine runs the worker's thread late. Other
/// work, such as a host function, takes its real time.
class stream : public std::enable_shared_from_this<stream> {
 public:
  /// The id that the real runtime gives the legacy default stream.
  static constexpr std::uint32_t legacy_id = 7;

  /// A call waits while this many commands are queued (about 1,000 on real devices).
  static constexpr std::uint64_t most_queued = 1024;

  stream(int device, bool blocking, std::uint32_t id) noexcept
      : device_{device}, blocking_{blocking}, id_{id} {}

  /// The worker's loop. It ends when the stream is retired and its queue is empty.
  void run();

  /// Waits while the queue is full.
  void await_room();

  /// Queues `work`, to run after all work queued before and after the places in `after`.
  stream_point enqueue(stream_work work, std::vector<stream_point> after, engine by);

  /// Ends the worker after the queued work.
  void retire();

  /// Makes every waiter check again whether it has to wait.
  void wake();

  [[nodiscard]] stream_point last_point();
  [[nodiscard]] bool idle() const noexcept { return enqueued_ == completed_; }
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] bool is_legacy() const noexcept { return id_ == legacy_id; }
  /// The stream's id in records.
  [[nodiscard]] std::uint32_t id() const noexcept { return id_; }
  /// Whether it synchronises with the legacy default stream.
  [[nodiscard]] bool blocking() const noexcept { return blocking_; }

 private:
  friend struct stream_point;

  struct task {
    stream_work work;
    std::vector<stream_point> after;
    loss_epoch epoch;
    steady::time_point called;
    std::shared_ptr<steady::time_point> ended;
    std::shared_ptr<queue_place> place;
  };

  [[nodiscard]] std::shared_ptr<queue_place> place_for(engine by) const;
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
  /// When the last queued work ended.
  std::shared_ptr<steady::time_point const> last_ended_;
  /// The stream's clock, which only the worker accesses.
  steady::time_point clock_;
  std::atomic<std::uint64_t> enqueued_{0};
  std::atomic<std::uint64_t> completed_{0};
  std::atomic<bool> retired_{false};
  bool worker_sleeps_ = false;
  int waiters_ = 0;
};

}  // namespace pyxfer::hostrt
