#pragma once

#include "trace/cupti.hpp"
#include "trace/gathering.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace pyxfer::trace {

/// The buffers that CUPTI fills: a bounded number, which are reused. The caller locks a mutex.
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

  /// Allocates `count` buffers and touches their pages, so that this does not happen inside a timed
  /// trial. May throw std::bad_alloc.
  void prepare(std::size_t count);

  /// Returns null if every buffer is lent, or if there is not enough memory.
  [[nodiscard]] std::uint8_t* lend() noexcept;

  /// Whether this pool has lent the buffer. Our callback may receive another profiler's buffers.
  [[nodiscard]] bool is_lent(std::uint8_t const* buffer) const noexcept;

  void take_back(std::uint8_t* buffer) noexcept;

  /// Frees the buffers that are not lent.
  void shrink() noexcept;

 private:
  [[nodiscard]] std::uint8_t* make() noexcept;

  std::vector<std::uint8_t*> idle_;
  std::vector<std::uint8_t*> lent_;
};

// CUPTI has one receiver of buffers per process, and passes no user data to it, so the functions
// below use the state of the process.

/// Where received buffers go: they are read with `reader` and gathered in `into`.
struct intake {
  cupti::functions call;
  parser reader;
  std::shared_ptr<gathering> into;
};

/// Reserves the receiver for one tracer, before `attach`. False if another tracer has it. May throw
/// std::bad_alloc.
[[nodiscard]] bool claim();

/// From now on buffers are lent to CUPTI, and their records go to `taking`.
void attach(std::shared_ptr<intake const> taking);

/// Gives the receiver back. No buffer is lent any more, and the records of a buffer that is still
/// lent are dropped when it comes back.
void release() noexcept;

/// The callbacks for cuptiActivityRegisterCallbacks.
void lend_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* records) noexcept;
void receive_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                    std::size_t bytes, std::size_t valid_bytes) noexcept;

}  // namespace pyxfer::trace
