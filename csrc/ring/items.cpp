#include "ring/items.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace pyxfer {
namespace {

/// Below this a line that is stored past the cache waits longer than it saves.
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

/// With the size known each item is one load and one store.
template <std::size_t bytes>
void copy_small(item_row to, item_row from, std::size_t count) {
  for_each(to, from, count, [](void* into, void const* out) { std::memcpy(into, out, bytes); });
}

/// Whether the items were small enough.
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

void copy_turned(item_grid to, item_grid from, std::size_t near, std::size_t far,
                 std::size_t bytes) {
  alignas(cache_line) std::array<unsigned char, cache_line * cache_line> held{};
  auto const base = reinterpret_cast<std::uintptr_t>(held.data());
  auto const side = cache_line / bytes;
  auto const step = static_cast<std::ptrdiff_t>(bytes);
  auto const held_far = static_cast<std::ptrdiff_t>(side * bytes);
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
        copy_plain(row, {base + i * bytes, held_far}, high, bytes);
      }
    }
  }
}

}  // namespace pyxfer
