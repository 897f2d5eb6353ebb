#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "ring/staged.hpp"

namespace pyxfer {

/// A thread for transfers that nobody waits for, one after the other.
class backlog {
 public:
  using task = std::packaged_task<staged()>;

  backlog();
  ~backlog() { close(); }
  backlog(backlog const&) = delete;
  backlog& operator=(backlog const&) = delete;
  backlog(backlog&&) = delete;
  backlog& operator=(backlog&&) = delete;

  void add(task added);
  /// When all is done that was added; a second time does nothing.
  void close() noexcept;

 private:
  void serve();

  std::mutex lock_;
  std::condition_variable came_;
  std::deque<task> tasks_;
  bool ended_{false};
  std::thread thread_;
};

}  // namespace pyxfer
