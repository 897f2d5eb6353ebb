#include "ring/layout.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace pyxfer {

// --- the description of an array -----------------------------------------------------------------

namespace {

[[noreturn]] void refuse(std::string const& why) { throw std::invalid_argument(why); }

std::size_t as_extent(std::ptrdiff_t number) {
  if (number < 0) { refuse("an array has no dimension of " + std::to_string(number) + " items"); }
  return static_cast<std::size_t>(number);
}

/// The bytes of all items. Like NumPy, it refuses a size that a signed number cannot hold.
std::size_t total_bytes(std::ptrdiff_t itemsize, std::vector<std::ptrdiff_t> const& shape) {
  std::ptrdiff_t total = itemsize;
  bool overflows = false;
  for (auto const extent : shape) {
    if (as_extent(extent) == 0) { return 0; }
    overflows = overflows || __builtin_mul_overflow(total, extent, &total);
  }
  if (overflows) { refuse("an array of that shape has more bytes than can be addressed"); }
  return static_cast<std::size_t>(total);
}

/// Refuses strides by which the first or the last byte would be outside the address space.
void require_addressable(std::uintptr_t address, std::ptrdiff_t itemsize,
                         std::vector<std::ptrdiff_t> const& shape,
                         std::vector<std::ptrdiff_t> const& strides) {
  std::ptrdiff_t below = 0;
  std::ptrdiff_t above = itemsize;
  bool overflows = false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    std::ptrdiff_t reach = 0;
    overflows = overflows || __builtin_mul_overflow(shape[i] - 1, strides[i], &reach);
    auto& side = reach < 0 ? below : above;
    overflows = overflows || __builtin_add_overflow(side, reach, &side);
  }
  std::uintptr_t end = 0;
  overflows = overflows ||
              __builtin_add_overflow(address, static_cast<std::uintptr_t>(above), &end) ||
              address < std::uintptr_t{0} - static_cast<std::uintptr_t>(below);
  if (overflows) { refuse("an array with those strides leaves the address space"); }
}

}  // namespace

layout::layout(std::uintptr_t address, std::ptrdiff_t itemsize,
               std::vector<std::ptrdiff_t> const& shape, std::vector<std::ptrdiff_t> const& strides)
    : address_{address}, bytes_{total_bytes(itemsize, shape)} {
  if (shape.size() != strides.size() || shape.size() > most_dimensions) {
    refuse("an array has up to 64 dimensions and one stride for each: shape has " +
           std::to_string(shape.size()) + " and strides has " + std::to_string(strides.size()));
  }
  if (itemsize < 1) { refuse("an item has at least one byte"); }
  if (bytes_ == 0) { return; }
  if (address == 0) { refuse("an array needs the address of its first item"); }
  require_addressable(address, itemsize, shape, strides);
  run_bytes_ = static_cast<std::size_t>(itemsize);
  for (auto i = shape.size(); i-- > 0;) {
    if (shape[i] != 1) { add_outer({as_extent(shape[i]), strides[i]}); }
  }
  std::reverse(rows_.begin(), rows_.end());
}

layout::layout(std::vector<part> parts)
    : address_{parts.empty() ? 0 : parts.front().address}, bytes_{0}, parts_{std::move(parts)} {
  for (auto const& each : parts_) {
    std::size_t end = 0;
    if (each.offset < bytes_ || __builtin_add_overflow(each.offset, each.bytes, &end) ||
        (each.address == 0 && each.bytes != 0)) {
      refuse("the arrays of a block need addresses, and places one behind the other");
    }
    bytes_ = end;
  }
}

/// Adds the dimensions from the innermost outwards. Two dimensions that one stride describes are
/// merged.
void layout::add_outer(dimension const& next) {
  auto const run = static_cast<std::ptrdiff_t>(run_bytes_);
  if (rows_.empty() && next.stride == run) {
    run_bytes_ *= next.extent;
    return;
  }
  if (!rows_.empty()) {
    auto& inner = rows_.back();
    std::ptrdiff_t whole = 0;
    auto const extent = static_cast<std::ptrdiff_t>(inner.extent);
    if (!__builtin_mul_overflow(inner.stride, extent, &whole) && whole == next.stride) {
      inner.extent *= next.extent;
      return;
    }
  }
  rows_.push_back(next);
}

bool layout::is_disjoint() const {
  auto by_stride = rows_;
  auto const distance = [](dimension const& of) {
    auto const stride = static_cast<std::size_t>(of.stride);
    return of.stride < 0 ? std::size_t{0} - stride : stride;
  };
  std::sort(by_stride.begin(), by_stride.end(),
            [&](dimension const& a, dimension const& b) { return distance(a) < distance(b); });
  auto covered = run_bytes_;
  return std::all_of(by_stride.begin(), by_stride.end(), [&](dimension const& dim) {
    auto const apart = distance(dim) >= covered;
    covered += distance(dim) * (dim.extent - 1);
    return apart;
  });
}

void validate_destination(layout const& made) {
  if (made.is_disjoint()) { return; }
  refuse(
      "the items of the destination overlap or interleave: download into an array with its own "
      "memory");
}

// --- copies of items -----------------------------------------------------------------------------

namespace {

/// For fewer bytes a streaming store takes longer than it saves.
constexpr std::size_t least_filled = 4096;

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

template <typename Copy>
void for_each(item_row to, item_row from, std::size_t count, Copy const& copy) {
  for (; count != 0; --count) {
    copy(pointer(to.address), pointer(from.address));
    to.address += static_cast<std::uintptr_t>(to.step);
    from.address += static_cast<std::uintptr_t>(from.step);
  }
}

/// With a size known to the compiler, an item is one load and one store.
template <std::size_t bytes>
void copy_small(item_row to, item_row from, std::size_t count) {
  for_each(to, from, count, [](void* into, void const* out) { std::memcpy(into, out, bytes); });
}

/// Returns false, without copying, if there is no function for items of this size.
bool copied_small(item_row to, item_row from, std::size_t count, std::size_t bytes) {
  switch (bytes) {
    case 1: copy_small<1>(to, from, count); return true;
    case 2: copy_small<2>(to, from, count); return true;
    case 3: copy_small<3>(to, from, count); return true;
    case 4: copy_small<4>(to, from, count); return true;
    case 8: copy_small<8>(to, from, count); return true;
    case 12: copy_small<12>(to, from, count); return true;
    case 16: copy_small<16>(to, from, count); return true;
    default: return false;
  }
}

void copy_plain(item_row to, item_row from, std::size_t count, std::size_t bytes) {
  if (copied_small(to, from, count, bytes)) { return; }
  for_each(to, from, count, [=](void* into, void const* out) { std::memcpy(into, out, bytes); });
}

}  // namespace

void copy_items(item_row to, item_row from, std::size_t count, std::size_t bytes,
                fill_function fill) {
  if (bytes < least_filled) {
    copy_plain(to, from, count, bytes);
  } else {
    for_each(to, from, count, [=](void* into, void const* out) { fill(into, out, bytes); });
  }
}

void copy_transposed(item_grid to, item_grid from, std::size_t near, std::size_t far,
                     std::size_t bytes) {
  // A tile of items, as wide and as high as a cache line, is filled by the lines of the source and
  // emptied by those of the target. It stays in the cache.
  alignas(cache_line) std::array<unsigned char, cache_line * cache_line> tile{};
  auto const base = reinterpret_cast<std::uintptr_t>(tile.data());
  auto const side = cache_line / bytes;
  auto const step = static_cast<std::ptrdiff_t>(bytes);
  auto const row_step = static_cast<std::ptrdiff_t>(side * bytes);
  for (std::size_t n = 0; n < near; n += side) {
    for (std::size_t f = 0; f < far; f += side) {
      auto const wide = std::min(side, near - n);
      auto const high = std::min(side, far - f);
      item_row const source{item_row{from.address, from.near}.from(n).address, from.far};
      item_row const target{item_row{to.address, to.far}.from(n).address, to.far};
      for (std::size_t i = 0; i < high; ++i) {
        copy_plain({base + i * side * bytes, step}, {source.from(f + i).address, from.near}, wide,
                   bytes);
      }
      for (std::size_t i = 0; i < wide; ++i) {
        auto const row = item_row{target.from(i).address, to.near}.from(f);
        copy_plain(row, {base + i * bytes, row_step}, high, bytes);
      }
    }
  }
}

// --- copies of a range of an array ---------------------------------------------------------------

namespace {

/// Signed, to be compared with strides.
constexpr auto line = static_cast<std::ptrdiff_t>(cache_line);

/// With fewer rows, too little of each cache line that is read would be used.
constexpr std::size_t least_transposed_rows = 4;

}  // namespace

/// The contiguous side of a copy, which is read or written.
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

  void clear(std::size_t begin, std::size_t end) const {
    if (reads_ && begin < end) { std::memset(pointer(base_ + begin), 0, end - begin); }
  }

  /// Copies `rows` of `columns` items. In the array the items of a column are adjacent.
  void copy_rows(item_grid here, std::size_t offset, std::size_t rows, std::size_t columns,
                 std::size_t bytes) const {
    item_grid const there{base_ + offset, static_cast<std::ptrdiff_t>(bytes),
                          static_cast<std::ptrdiff_t>(columns * bytes)};
    if (reads_) {
      copy_transposed(there, here, rows, columns, bytes);
    } else {
      copy_transposed(here, there, columns, rows, bytes);
    }
  }

 private:
  linear_side(void* base, fill_function fill, bool reads)
      : base_{reinterpret_cast<std::uintptr_t>(base)}, fill_{fill}, reads_{reads} {}

  std::uintptr_t base_;
  fill_function fill_;
  bool reads_;
};

/// A position among the runs, in C order.
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

  /// The items from here, along the innermost dimension.
  [[nodiscard]] item_row row() const noexcept {
    return {address_, over_.rows_.empty() ? 0 : over_.rows_.back().stride};
  }
  /// Number of runs from here to the end of the innermost dimension.
  [[nodiscard]] std::size_t left() const noexcept {
    auto const inner = over_.rows_.size() - 1;
    return over_.rows_.empty() ? 1 : over_.rows_[inner].extent - index_[inner];
  }
  /// Number of whole rows from here to the end of the second innermost dimension, if the items of a
  /// column are adjacent and those of a row are not, as in Fortran order; else 0.
  [[nodiscard]] std::size_t transposed_rows() const noexcept {
    auto const& rows = over_.rows_;
    auto const outer = rows.size() - 2;
    if (rows.size() < 2 || index_[outer + 1] != 0 || over_.run_bytes_ > most_transposed_bytes) {
      return 0;
    }
    auto const is_transposed =
        std::abs(rows[outer].stride) < line && std::abs(rows[outer + 1].stride) >= line;
    return is_transposed ? rows[outer].extent - index_[outer] : 0;
  }
  [[nodiscard]] item_grid transposed() const noexcept {
    auto const& rows = over_.rows_;
    return {address_, rows[rows.size() - 2].stride, rows.back().stride};
  }

  /// Moves by runs, at most to the end of the innermost dimension.
  void advance(std::size_t runs) noexcept { advance(over_.rows_.size(), runs); }
  /// Moves by rows, at most to the end of the second innermost dimension.
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

/// Copies whole runs from `at` on, at most `wanted` bytes; returns how many bytes it copied.
std::size_t layout::copy_runs(walk& at, std::size_t wanted, std::size_t offset,
                              linear_side const& other) const {
  if (auto const transposed = at.transposed_rows(); transposed != 0) {
    auto const columns = rows_.back().extent;
    auto const rows = std::min(transposed, wanted / (columns * run_bytes_));
    if (rows >= least_transposed_rows) {
      other.copy_rows(at.transposed(), offset, rows, columns, run_bytes_);
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
  if (!parts_.empty()) { return copy_parts(begin, end, other); }
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

void layout::copy_parts(std::size_t begin, std::size_t end, linear_side const& other) const {
  auto done = begin;
  auto const ends_before = [](part const& each, std::size_t at) { return each.end() <= at; };
  auto next = std::lower_bound(parts_.begin(), parts_.end(), begin, ends_before);
  for (; next != parts_.end() && next->offset < end; ++next) {
    auto const first = std::max(begin, next->offset);
    auto const last = std::min(end, next->end());
    other.clear(done - begin, first - begin);
    if (first < last) {  // an array without items may have no address
      other.copy({next->address + (first - next->offset), 0}, first - begin, 1, last - first);
    }
    done = last;
  }
  other.clear(done - begin, end - begin);
}

void layout::read(std::size_t begin, std::size_t end, void* to, fill_function fill) const {
  copy(begin, end, linear_side{to, fill});
}

void layout::write(std::size_t begin, std::size_t end, void const* from, fill_function fill) const {
  copy(begin, end, linear_side{from, fill});
}

}  // namespace pyxfer
