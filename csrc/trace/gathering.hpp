#pragma once

#include "trace/clock.hpp"
#include "trace/kinds.hpp"
#include "trace/parse.hpp"

#include <array>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace pyxfer::trace {

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
