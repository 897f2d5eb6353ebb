#pragma once

#include "trace/collection.hpp"
#include "trace/library.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace pyxfer::trace {

/// The records since the last `take`, with times of the host's steady clock.
struct taken {
  record_table records;
  std::vector<std::string> names;
  std::map<std::string, std::size_t> dropped;
  std::int64_t clock_error_ns = 0;
  std::int64_t clock_drift_ns = 0;
};

/// Records the device's activity and the CUDA calls of this process, between `start` and `stop`.
/// Any thread may call its functions. In a forked child they throw `forked_error`, except for
/// `close`, which releases nothing there.
class tracer {
 public:
  /// Throws `trace_unavailable_error` if none of the libraries can be opened.
  tracer(std::vector<candidate> libraries, std::vector<std::string> const& kinds,
         std::size_t capacity_bytes);
  ~tracer();
  tracer(tracer const&) = delete;
  tracer& operator=(tracer const&) = delete;
  tracer(tracer&&) = delete;
  tracer& operator=(tracer&&) = delete;

  /// The library that is used. Before a successful start it is the one that will be tried first.
  [[nodiscard]] std::string library_name() const;
  [[nodiscard]] std::uint32_t version() const;
  /// The kinds that the library refused at the last start, by their words, with its reasons.
  [[nodiscard]] std::map<std::string, std::string> refused() const;

  /// Starts with the first library that the driver accepts. Throws `trace_unavailable_error` if it
  /// accepts none.
  void start();
  /// Does nothing if the tracer does not run. The records can be taken afterwards.
  void stop();
  [[nodiscard]] taken take();
  /// Stops, and drops the records. The tracer cannot be started again.
  void close();

 private:
  void begin();
  void end();
  [[nodiscard]] clock_comparison compare() const;
  void compare_again(clock_comparison const& now);

  std::set<record_kind> const kinds_;
  std::shared_ptr<gathering> gathering_;
  mutable std::mutex mutex_;
  library_choice choice_;
  std::unique_ptr<collection> running_;
  std::map<std::string, std::string> refused_;
  bool closed_ = false;
  clock_comparison compared_;
  std::int64_t error_ns_ = 0;
  std::int64_t drift_ns_ = 0;
};

}  // namespace pyxfer::trace
