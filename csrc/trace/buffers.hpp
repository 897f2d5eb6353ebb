#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pyxfer::trace {

/// The buffers that CUPTI fills: a bounded number, used again and again. Its user locks.
class buffer_pool {
 public:
  static constexpr std::size_t buffer_bytes = std::size_t{1} << 20U;
  static constexpr std::size_t most_buffers = 32;

  buffer_pool() = default;
  ~buffer_pool();
  buffer_pool(buffer_pool const&) = delete;
  buffer_pool& operator=(buffer_pool const&) = delete;
  buffer_pool(buffer_pool&&) = delete;
  buffer_pool& operator=(buffer_pool&&) = delete;

  /// Makes so many ready, their pages touched, so that none is made while something is timed. May
  /// throw std::bad_alloc.
  void prepare(std::size_t count);

  /// Null where every buffer is out, or memory is.
  [[nodiscard]] std::uint8_t* lend() noexcept;

  /// Whether a buffer is one that was lent: another profiler's may come back through our callback.
  [[nodiscard]] bool is_lent(std::uint8_t const* buffer) const noexcept;

  void take_back(std::uint8_t* buffer) noexcept;

  /// Frees what is not lent.
  void shrink() noexcept;

 private:
  [[nodiscard]] std::uint8_t* make() noexcept;

  std::vector<std::uint8_t*> idle_;
  std::vector<std::uint8_t*> lent_;
};

}  // namespace pyxfer::trace
