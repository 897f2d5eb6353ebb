#pragma once

#include <cstddef>
#include <vector>

namespace pyxfer::trace {

/// Pages of our own, and none of the heap's: a loop whose memory lies there would have it trimmed
/// and faulted in anew at other times than without a tracer, and keep doing so after it. They are a
/// promise until they are used, or `touched` at once. Null where there is no room.
[[nodiscard]] void* map_pages(std::size_t bytes, bool touched) noexcept;
void unmap_pages(void* pages, std::size_t bytes) noexcept;

[[noreturn]] void throw_no_room();

/// For containers.
template <typename T>
struct mapped_allocator {
  using value_type = T;

  mapped_allocator() noexcept = default;
  template <typename U>
  mapped_allocator(mapped_allocator<U> const& /*other*/) noexcept {}  // NOLINT: as allocators are

  [[nodiscard]] T* allocate(std::size_t count) {
    auto* const found = map_pages(count * sizeof(T), false);
    if (found == nullptr) { throw_no_room(); }
    return static_cast<T*>(found);
  }
  void deallocate(T* pages, std::size_t count) noexcept { unmap_pages(pages, count * sizeof(T)); }

  friend bool operator==(mapped_allocator const& /*a*/, mapped_allocator const& /*b*/) noexcept {
    return true;
  }
  friend bool operator!=(mapped_allocator const& /*a*/, mapped_allocator const& /*b*/) noexcept {
    return false;
  }
};

template <typename T>
using mapped_vector = std::vector<T, mapped_allocator<T>>;

}  // namespace pyxfer::trace
