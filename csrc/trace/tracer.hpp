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

/// Everything since the last time, on the host's steady clock.
struct taken {
  record_table records;
  std::vector<std::string> names;
  std::map<std::string, std::size_t> dropped;
  std::int64_t clock_error_ns = 0;
  std::int64_t clock_drift_ns = 0;
};

/// Records what the device and the CUDA calls of this process do, between start and stop. Its calls
/// may come from any thread. In a forked child each throws `forked_error`, but for `close`, which
/// releases nothing there.
class tracer {
 public:
  /// Throws `trace_unavailable_error` where none of the libraries can be opened.
  tracer(std::vector<candidate> libraries, std::vector<std::string> const& kinds,
         std::size_t capacity_bytes);
  ~tracer();
  tracer(tracer const&) = delete;
  tracer& operator=(tracer const&) = delete;
  tracer(tracer&&) = delete;
  tracer& operator=(tracer&&) = delete;

  /// The library that is used; until a start has succeeded, the one that is tried first.
  [[nodiscard]] std::string library_name() const;
  [[nodiscard]] std::uint32_t version() const;
  /// The words of kinds that the library refused at the last start, with the reason.
  [[nodiscard]] std::map<std::string, std::string> refused() const;

  /// Starts with the first library that the driver takes. Throws `trace_unavailable_error`.
  void start();
  /// What was recorded can be taken afterwards. Nothing where it does not run.
  void stop();
  [[nodiscard]] taken take();
  /// For good.
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
