#include "trace/gathering.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

namespace pyxfer::trace {

// --- the clocks ----------------------------------------------------------------------------------

namespace {

constexpr int comparisons = 16;

std::int64_t host_clock_ns() {
  auto const now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

/// Whether the activity clock was set between two comparisons: no clock drifts by a thousandth.
bool clock_was_set(clock_comparison const& from, clock_comparison const& to) noexcept {
  constexpr std::int64_t thousand = 1000;
  auto const slack = from.error_ns + to.error_ns;
  auto const moved = std::abs(to.offset_ns() - from.offset_ns());
  return moved > (to.host_ns - from.host_ns) / thousand + slack;
}

/// 0 inside the span, else the distance to its nearer end.
std::int64_t distance(std::int64_t at, std::int64_t begin, std::int64_t end) noexcept {
  return std::max({begin - at, at - end, std::int64_t{0}});
}

/// Converts a time around a clock that was set. It uses the offset from before or from after the
/// change, whichever gives a time between the two comparisons.
std::int64_t time_between(std::int64_t activity_ns, clock_comparison const& from,
                          clock_comparison const& to) noexcept {
  auto const before = activity_ns + from.offset_ns();
  auto const after = activity_ns + to.offset_ns();
  auto const by_before = distance(before, from.host_ns, to.host_ns);
  return by_before <= distance(after, from.host_ns, to.host_ns) ? before : after;
}

}  // namespace

clock_comparison compare_clocks(std::function<std::int64_t()> const& activity_clock) {
  clock_comparison best;
  best.error_ns = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < comparisons; ++i) {
    auto const before = host_clock_ns();
    auto const activity = activity_clock();
    auto const half = (host_clock_ns() - before + 1) / 2;
    if (half < best.error_ns) { best = {before + half, activity, half}; }
  }
  return best;
}

std::int64_t host_time(std::int64_t activity_ns, clock_comparison const& from,
                       clock_comparison const& to) noexcept {
  if (activity_ns == 0) { return 0; }
  if (clock_was_set(from, to)) { return time_between(activity_ns, from, to); }
  if (activity_ns <= from.activity_ns) { return activity_ns + from.offset_ns(); }
  if (activity_ns >= to.activity_ns) { return activity_ns + to.offset_ns(); }
  auto const part = static_cast<double>(activity_ns - from.activity_ns) /
                    static_cast<double>(to.activity_ns - from.activity_ns);
  auto const moved = static_cast<double>(to.offset_ns() - from.offset_ns());
  return activity_ns + from.offset_ns() + std::llround(part * moved);
}

void convert_times(record_table& records, std::size_t first, clock_comparison const& from,
                   clock_comparison const& to) noexcept {
  for (auto i = first; i < records.size(); ++i) {
    auto& row = records[i];
    row.start_ns = host_time(row.start_ns, from, to);
    row.end_ns = host_time(row.end_ns, from, to);
  }
}

// --- the records ---------------------------------------------------------------------------------

namespace {

constexpr std::size_t unknown_kind = 0;  // record_kind begins at 1

std::size_t records_in(std::size_t bytes) {
  if (bytes < sizeof(record)) {
    throw std::invalid_argument("a trace needs room for at least one record, " +
                                std::to_string(sizeof(record)) + " bytes");
  }
  return bytes / sizeof(record);
}

/// Reserves address space, whose pages cost no memory until they are used.
record_table reserved_table(std::size_t count) {
  record_table empty;
  empty.reserve(count);
  return empty;
}

}  // namespace

gathering::gathering(std::size_t capacity_bytes)
    : most_records_{records_in(capacity_bytes)}, records_{reserved_table(most_records_)} {}

void gathering::read(cupti::functions const& call, parser const& reader, std::uint8_t* buffer,
                     std::size_t valid_bytes) noexcept {
  cupti::activity* raw = nullptr;
  auto found = call.get_next_record(buffer, valid_bytes, &raw);
  while (found == cupti::result::success && raw != nullptr) {
    add(reader, *raw);
    found = call.get_next_record(buffer, valid_bytes, &raw);
  }
  // An incomplete record ends the buffer. The number of records after it is not known, so one
  // counts.
  if (found != cupti::result::limit_reached && valid_bytes != 0) { lose(1); }
}

void gathering::add(parser const& reader, cupti::activity const& raw) noexcept {
  auto const kind = kind_of(raw.kind);
  if (!kind) { return; }
  // Held for one record only. CUPTI must not be called under this mutex, because it may be waiting
  // in a callback that needs it.
  std::scoped_lock const lock{mutex_};
  try {
    auto const parsed = reader.parse(raw, names_);
    if (!parsed) { return; }
    if (records_.size() < most_records_) {
      records_.push_back(*parsed);  // does not allocate: the room was reserved
      return;
    }
  } catch (std::bad_alloc const&) {  // NOLINT(bugprone-empty-catch): counted as dropped below
  }
  ++dropped_.at(static_cast<std::size_t>(*kind));
}

void gathering::lose(std::size_t records) noexcept {
  std::scoped_lock const lock{mutex_};
  dropped_[unknown_kind] += records;
}

void gathering::convert(clock_comparison const& from, clock_comparison const& to) noexcept {
  std::scoped_lock const lock{mutex_};
  convert_times(records_, converted_, from, to);
  converted_ = records_.size();
}

gathered gathering::take() {
  gathered out;
  out.records = reserved_table(most_records_);
  name_table fresh;
  std::array<std::size_t, 1 + kinds_of_records> dropped{};
  {
    std::scoped_lock const lock{mutex_};
    std::swap(out.records, records_);
    std::swap(fresh, names_);
    std::swap(dropped, dropped_);
    out.converted = std::exchange(converted_, 0);
  }
  out.names = std::move(fresh.names());
  for (std::size_t i = 0; i < dropped.size(); ++i) {
    if (dropped.at(i) == 0) { continue; }
    out.dropped.emplace(i == unknown_kind ? "unknown" : word_of(static_cast<record_kind>(i)),
                        dropped.at(i));
  }
  return out;
}

}  // namespace pyxfer::trace
