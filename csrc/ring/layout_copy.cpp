#include "ring/items.hpp"
#include "ring/layout.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace pyxfer {
namespace {

/// As strides are, which may be negative.
constexpr auto line = static_cast<std::ptrdiff_t>(cache_line);

/// Fewer rows leave too little of each line that is read for the others.
constexpr std::size_t least_turned_rows = 4;

}  // namespace

/// Into memory without gaps, or out of it.
class layout::linear_side {
 public:
  linear_side(void* to, fill_function fill) : linear_side{to, fill, true} {}
  linear_side(void const* from, fill_function fill)
      : linear_side{const_cast<void*>(from), fill, false} {}

  void copy(item_row here, std::size_t offset, std::size_t count, std::size_t bytes) const {
    item_row const there{base_ + offset, static_cast<std::ptrdiff_t>(bytes)};
    if (reads_) {
      copy_items(there, here, count, bytes, fill_);
    } else {
      copy_items(here, there, count, bytes, fill_);
    }
  }

  /// `rows` of `columns` items; here it is the items of a column that lie together.
  void copy_rows(item_grid here, std::size_t offset, std::size_t rows, std::size_t columns,
                 std::size_t bytes) const {
    item_grid const there{base_ + offset, static_cast<std::ptrdiff_t>(bytes),
                          static_cast<std::ptrdiff_t>(columns * bytes)};
    if (reads_) {
      copy_turned(there, here, rows, columns, bytes);
    } else {
      copy_turned(here, there, columns, rows, bytes);
    }
  }

 private:
  linear_side(void* base, fill_function fill, bool reads)
      : base_{reinterpret_cast<std::uintptr_t>(base)}, fill_{fill}, reads_{reads} {}

  std::uintptr_t base_;
  fill_function fill_;
  bool reads_;
};

/// A place among the runs, in C order.
class layout::walk {
 public:
  walk(layout const& over, std::size_t run) : over_{over}, address_{over.address_} {
    for (auto i = over_.rows_.size(); i-- > 0;) {
      auto const& [extent, stride] = over_.rows_[i];
      index_[i] = run % extent;
      run /= extent;
      address_ += static_cast<std::uintptr_t>(stride) * index_[i];
    }
  }

  /// From here, along the innermost dimension.
  [[nodiscard]] item_row row() const noexcept {
    return {address_, over_.rows_.empty() ? 0 : over_.rows_.back().stride};
  }
  /// Runs from here to the end of that dimension.
  [[nodiscard]] std::size_t left() const noexcept {
    auto const inner = over_.rows_.size() - 1;
    return over_.rows_.empty() ? 1 : over_.rows_[inner].extent - index_[inner];
  }
  /// Whole rows from here to the end of the dimension around it, where that one's items lie
  /// together and those of a row do not, as in Fortran's order.
  [[nodiscard]] std::size_t turned_rows() const noexcept {
    auto const& rows = over_.rows_;
    auto const outer = rows.size() - 2;
    if (rows.size() < 2 || index_[outer + 1] != 0 || over_.run_bytes_ > most_turned_bytes) {
      return 0;
    }
    auto const is_turned =
        std::abs(rows[outer].stride) < line && std::abs(rows[outer + 1].stride) >= line;
    return is_turned ? rows[outer].extent - index_[outer] : 0;
  }
  [[nodiscard]] item_grid turned() const noexcept {
    auto const& rows = over_.rows_;
    return {address_, rows[rows.size() - 2].stride, rows.back().stride};
  }

  /// At most to the end of the innermost dimension ...
  void advance(std::size_t runs) noexcept { advance(over_.rows_.size(), runs); }
  /// ... or by rows, to the end of the dimension around it.
  void advance_rows(std::size_t rows) noexcept { advance(over_.rows_.size() - 1, rows); }

 private:
  void advance(std::size_t dimensions, std::size_t steps) noexcept {
    for (auto i = dimensions; i-- > 0; steps = 1) {
      auto const& [extent, stride] = over_.rows_[i];
      index_[i] += steps;
      address_ += static_cast<std::uintptr_t>(stride) * steps;
      if (index_[i] < extent) { return; }
      address_ -= static_cast<std::uintptr_t>(stride) * extent;
      index_[i] = 0;
    }
  }

  layout const& over_;
  std::uintptr_t address_;
  std::array<std::size_t, most_dimensions> index_{};
};

/// Copies whole runs from `at` on, so many bytes at most; returns how many it copied.
std::size_t layout::copy_runs(walk& at, std::size_t wanted, std::size_t offset,
                              linear_side const& other) const {
  if (auto const turned = at.turned_rows(); turned != 0) {
    auto const columns = rows_.back().extent;
    auto const rows = std::min(turned, wanted / (columns * run_bytes_));
    if (rows >= least_turned_rows) {
      other.copy_rows(at.turned(), offset, rows, columns, run_bytes_);
      at.advance_rows(rows);
      return rows * columns * run_bytes_;
    }
  }
  auto const runs = std::min(at.left(), wanted / run_bytes_);
  other.copy(at.row(), offset, runs, run_bytes_);
  at.advance(runs);
  return runs * run_bytes_;
}

void layout::copy(std::size_t begin, std::size_t end, linear_side const& other) const {
  if (begin == end) { return; }
  auto const wanted = end - begin;
  auto const skipped = begin % run_bytes_;
  std::size_t done = 0;
  walk at{*this, begin / run_bytes_};
  if (skipped != 0) {
    done = std::min(run_bytes_ - skipped, wanted);
    other.copy({at.row().address + skipped, 0}, 0, 1, done);
    at.advance(1);
  }
  while (wanted - done >= run_bytes_) { done += copy_runs(at, wanted - done, done, other); }
  if (done != wanted) { other.copy(at.row(), done, 1, wanted - done); }
}

void layout::read(std::size_t begin, std::size_t end, void* to, fill_function fill) const {
  copy(begin, end, linear_side{to, fill});
}

void layout::write(std::size_t begin, std::size_t end, void const* from, fill_function fill) const {
  copy(begin, end, linear_side{from, fill});
}

}  // namespace pyxfer
