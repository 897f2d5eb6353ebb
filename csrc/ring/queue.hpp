#pragma once

#include "cuda/wait.hpp"
#include "ring/settings.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace pyxfer {

/// Tells when the copies of a transfer have ended that the queue has already left.
class arrival {
 public:
  arrival(int device, CUcontext context) : context_{context}, last_{device, event_use::order} {}
  /// A ticket may be dropped when Python exits, and then the device may never answer.
  ~arrival() {
    if (is_recorded_ && !has_passed_) { last_.abandon(); }
  }
  arrival(arrival const&) = delete;
  arrival& operator=(arrival const&) = delete;
  arrival(arrival&&) = delete;
  arrival& operator=(arrival&&) = delete;

  /// Called by the thread of the queue, behind the last copy.
  void record(stream_view on) {
    last_.record(on);
    is_recorded_ = true;
  }
  /// Waits at most `seconds`; false if the copies have not ended. Without copies it is true.
  [[nodiscard]] bool await(double seconds) const;

 private:
  CUcontext context_;
  event last_;
  bool is_recorded_{false};
  mutable std::atomic<bool> has_passed_{false};
};

/// A transfer that was started without waiting for it. It continues if its ticket is dropped.
class ticket {
 public:
  explicit ticket(std::shared_future<staged> ends, std::shared_ptr<arrival const> arrives = nullptr)
      : ends_{std::move(ends)}, arrives_{std::move(arrives)} {}

  /// Whether it has ended, successfully or not.
  [[nodiscard]] bool done() const;
  /// Waits at most `seconds`; throws the transfer's error, or `timeout_error` while it continues.
  [[nodiscard]] staged result(double seconds) const;

 private:
  std::shared_future<staged> ends_;
  /// Null if the copies have ended when the queue goes on.
  std::shared_ptr<arrival const> arrives_;
};

// clang-format off
/// The transfers of a ring, first in, first out. The front one runs; the others wait.
///
/// A blocking transfer runs in its caller's thread: `enter` returns when it is at the front. A
/// started one runs in the thread of the queue. Its order and its work are one entry, which is
/// added under one mutex, so the thread of the queue never waits for a transfer behind its own.
///
/// | field                       | written by                  | read by                | ordered by                 |
/// |-----------------------------|-----------------------------|------------------------|----------------------------|
/// | entries_, entry::result     | callers, the queue's thread | the same               | mutex_                     |
/// | closed_, abandoned_, ended_ | callers                     | the same               | mutex_                     |
/// | entry::is_started           | `start`                     | all of them            | mutex_: before it is added |
/// | entry::work                 | `start`, the queue's thread | the queue's thread     | mutex_, then the front     |
/// | entry::cancelled            | any thread that cancels     | the transfer's threads | relaxed: it only asks      |
// clang-format on
class transfer_queue {
 public:
  /// The work of a started transfer. It ends early when the flag is set.
  using job = std::function<staged(std::atomic<bool>& cancelled)>;
  class place;

  transfer_queue();
  /// Waits for every started transfer.
  ~transfer_queue() { end_thread(); }
  transfer_queue(transfer_queue const&) = delete;
  transfer_queue& operator=(transfer_queue const&) = delete;
  transfer_queue(transfer_queue&&) = delete;
  transfer_queue& operator=(transfer_queue&&) = delete;

  /// Returns when the transfer is at the front of the queue. Throws `cancelled_error` if `cancel`,
  /// `abandon` or `interrupted` ends it before, and std::logic_error if the queue is closed.
  [[nodiscard]] place enter(interruption const& interrupted);
  /// Adds a transfer for the queue's thread. Throws std::logic_error if the queue is closed. With
  /// `arrives` the work returns before its copies have ended, and the ticket waits for them.
  [[nodiscard]] ticket start(job work, std::shared_ptr<arrival const> arrives = nullptr);

  /// Cancels every transfer in the queue. Waiting transfers end at once, the front one when its
  /// threads see the flag.
  void cancel() noexcept;
  /// Refuses later transfers, and returns at the front when all earlier ones have ended; returns
  /// nothing if the queue is abandoned. Throws `timeout_error` after `seconds`, and can then be
  /// called again.
  [[nodiscard]] std::optional<place> close(double seconds);
  /// Cancels every transfer, refuses later ones, and ends the waits of `close`.
  void abandon() noexcept;
  [[nodiscard]] bool is_closed() const;
  /// Number of transfers that run or wait, and of waiting calls of `close`.
  [[nodiscard]] std::size_t size() const;
  /// Ends the thread after it has run the started transfers. Call it at the front of the queue, or
  /// in the destructor.
  void end_thread() noexcept;

 private:
  struct entry {
    bool is_started{false};                      ///< written before the entry is added
    job work;                                    ///< of a started transfer
    std::optional<std::promise<staged>> result;  ///< of a started transfer, until it is answered
    std::atomic<bool> cancelled{false};
  };
  using entry_ptr = std::shared_ptr<entry>;

  [[nodiscard]] bool is_front(entry const& own) const;
  void add(entry_ptr const& added);
  void remove(entry_ptr const& removed) noexcept;
  void cancel_all() noexcept;
  void await_front(std::unique_lock<std::mutex>& held, entry& own, interruption const& interrupted);
  [[nodiscard]] bool has_work() const;
  void serve();
  void run(entry_ptr const& started);

  mutable std::mutex mutex_;
  std::condition_variable moved_;  ///< for callers that wait to be at the front
  std::condition_variable
      work_came_;  ///< for the queue's thread, which blocking transfers let sleep
  std::deque<entry_ptr> entries_;
  bool closed_{false};
  bool abandoned_{false};
  bool ended_{false};
  std::thread thread_;
};

/// The front of the queue, kept until this is destroyed.
class transfer_queue::place {
 public:
  place(transfer_queue& in, entry_ptr own) noexcept : queue_{&in}, own_{std::move(own)} {}
  ~place() {
    if (own_) { queue_->remove(own_); }
  }
  place(place&& other) noexcept = default;
  place& operator=(place&& other) = delete;
  place(place const&) = delete;
  place& operator=(place const&) = delete;

  [[nodiscard]] std::atomic<bool>& cancelled() const noexcept { return own_->cancelled; }

 private:
  transfer_queue* queue_;
  entry_ptr own_;  ///< null when it was moved from
};

}  // namespace pyxfer
