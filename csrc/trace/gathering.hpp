#pragma once

#include "trace/parse.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace pyxfer::trace {

/// The readings of the host's steady clock and of the activity clock at one moment.
struct clock_comparison {
  std::int64_t host_ns = 0;
  std::int64_t activity_ns = 0;
  /// Half the time between the host clock's readings before and after the activity clock's.
  std::int64_t error_ns = 0;

  [[nodiscard]] std::int64_t offset_ns() const noexcept { return host_ns - activity_ns; }
};

/// Compares the clocks several times, and returns the comparison with the smallest error.
[[nodiscard]] clock_comparison compare_clocks(std::function<std::int64_t()> const& activity_clock);

/// Converts an activity time to the host's time. Between the two comparisons it interpolates;
/// outside it uses the nearer one. If the activity clock was set in between, it uses the offset
/// that gives a time between the comparisons. 0 means that the time is not known, and stays 0.
[[nodiscard]] std::int64_t host_time(std::int64_t activity_ns, clock_comparison const& from,
                                     clock_comparison const& to) noexcept;

/// Converts the times of the records from `first` on to the host's time.
void convert_times(record_table& records, std::size_t first, clock_comparison const& from,
                   clock_comparison const& to) noexcept;

/// The gathered records.
struct gathered {
  record_table records;
  /// The number of records, from the first, whose times were converted to the host's.
  std::size_t converted = 0;
  std::vector<std::string> names;
  /// The number of dropped records by the word of their kind, or by "unknown".
  std::map<std::string, std::size_t> dropped;
};

/// The table in which CUPTI's threads gather records. It has a fixed capacity; records beyond it
/// are counted as dropped.
class gathering {
 public:
  /// Throws std::invalid_argument if the capacity is less than one record, and std::bad_alloc if it
  /// cannot be reserved.
  explicit gathering(std::size_t capacity_bytes);

  /// Adds all records of one of CUPTI's buffers.
  void read(cupti::functions const& call, parser const& reader, std::uint8_t* buffer,
            std::size_t valid_bytes) noexcept;

  /// Counts records that the library has dropped.
  void lose(std::size_t records) noexcept;

  /// Converts the times of all records that were not converted yet.
  void convert(clock_comparison const& from, clock_comparison const& to) noexcept;

  /// Returns everything, and leaves the table empty.
  [[nodiscard]] gathered take();

 private:
  void add(parser const& reader, cupti::activity const& raw) noexcept;

  std::size_t const most_records_;
  std::mutex mutex_;
  record_table records_;
  std::size_t converted_ = 0;
  name_table names_;
  std::array<std::size_t, 1 + kinds_of_records> dropped_{};
};

}  // namespace pyxfer::trace
