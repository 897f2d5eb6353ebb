#pragma once

#include "trace/gathering.hpp"

#include <memory>

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

}  // namespace pyxfer::trace
