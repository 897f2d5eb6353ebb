#pragma once

#include "trace/cupti.hpp"
#include "trace/gathering.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
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

/// CUPTI knows one receiver of buffers in a process, and says nothing of whose they are.
namespace pyxfer::trace {

/// What comes in is read with `reader` and gathered in `into`.
struct intake {
  cupti::functions call;
  parser reader;
  std::shared_ptr<gathering> into;
};

/// Keeps the place for one who is about to attach. False where somebody has it. May throw
/// std::bad_alloc.
[[nodiscard]] bool claim();

/// From now on buffers are lent, and read for `taking`.
void attach(std::shared_ptr<intake const> taking);

/// Gives the place back: no buffer is lent, and one that is still out is dropped when it comes
/// back.
void release() noexcept;

/// For cuptiActivityRegisterCallbacks.
void lend_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* records) noexcept;
void receive_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                    std::size_t bytes, std::size_t valid_bytes) noexcept;

/// The one place that CUPTI has for a subscriber in a process. Nothing is called back: it is held
/// so that another profiler is found before anything of it is disturbed. Thread ids are the
/// system's meanwhile, and what they were afterwards, because other profilers may know threads by
/// other ids.
class subscription {
 public:
  /// Throws `refusal`, and `trace_unavailable_error` where a tracer of this process has the place.
  explicit subscription(cupti::functions const& call);
  ~subscription();
  subscription(subscription const&) = delete;
  subscription& operator=(subscription const&) = delete;
  subscription(subscription&&) = delete;
  subscription& operator=(subscription&&) = delete;

  void close();

 private:
  void use_native_thread_ids();

  cupti::functions call_;
  std::uint32_t thread_ids_before_ = 0;
  cupti::subscriber subscriber_ = nullptr;
};

}  // namespace pyxfer::trace
