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

/// What the host's steady clock and the activity clock showed at one moment.
struct clock_comparison {
  std::int64_t host_ns = 0;
  std::int64_t activity_ns = 0;
  /// Half the time between the two readings of the host's clock around it.
  std::int64_t error_ns = 0;

  [[nodiscard]] std::int64_t offset_ns() const noexcept { return host_ns - activity_ns; }
};

/// The tightest of some readings of the activity clock, each between two of the host's.
[[nodiscard]] clock_comparison compare_clocks(std::function<std::int64_t()> const& activity_clock);

/// The host's time of an activity time: between the two comparisons by the line through them,
/// outside by the nearer one. Where the clock was set in between, by the one that makes sense. 0
/// stays 0, which is no time.
[[nodiscard]] std::int64_t host_time(std::int64_t activity_ns, clock_comparison const& from,
                                     clock_comparison const& to) noexcept;

/// What has been gathered, handed out.
struct gathered {
  record_table records;
  /// So many of them have the host's time already.
  std::size_t converted = 0;
  std::vector<std::string> names;
  /// By the word of their kind, or "unknown".
  std::map<std::string, std::size_t> dropped;
};

/// The table that records are gathered in, from CUPTI's threads. It never grows beyond its bound:
/// what finds no room is counted.
class gathering {
 public:
  /// Throws std::invalid_argument for less than one record, std::bad_alloc where there is no room.
  explicit gathering(std::size_t capacity_bytes);

  /// Everything in one of CUPTI's buffers.
  void read(cupti::functions const& call, parser const& reader, std::uint8_t* buffer,
            std::size_t valid_bytes) noexcept;

  /// Records that the library has dropped.
  void lose(std::size_t records) noexcept;

  /// Gives everything that has none yet the host's time.
  void convert(clock_comparison const& from, clock_comparison const& to) noexcept;

  /// Hands out everything, and is empty.
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

/// Gives the records from `first` on the host's time.
void convert(record_table& records, std::size_t first, clock_comparison const& from,
             clock_comparison const& to) noexcept;

}  // namespace pyxfer::trace
