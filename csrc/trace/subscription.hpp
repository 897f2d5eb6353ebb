#pragma once

#include "trace/cupti.hpp"

namespace pyxfer::trace {

/// The one place that CUPTI has for a subscriber in a process. Nothing is called back: it is held
/// so that another profiler is found before anything of it is disturbed. Thread ids are the
/// system's meanwhile, and what they were afterwards, because other profilers may know threads by
/// other ids.
class subscription {
 public:
  /// Throws `refusal`, and `trace_unavailable_error` where a tracer of this process has the place.
  explicit subscription(cupti::functions const& call);
  ~subscription();
  subscription(subscription const&) = delete;
  subscription& operator=(subscription const&) = delete;
  subscription(subscription&&) = delete;
  subscription& operator=(subscription&&) = delete;

  void close();

 private:
  void use_native_thread_ids();

  cupti::functions call_;
  std::uint32_t thread_ids_before_ = 0;
  cupti::subscriber subscriber_ = nullptr;
};

}  // namespace pyxfer::trace
