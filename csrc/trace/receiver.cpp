#include "trace/receiver.hpp"

#include "trace/buffers.hpp"

#include <mutex>
#include <utility>

namespace pyxfer::trace {
namespace {

/// So that no page of a buffer is touched for the first time inside a call that is recorded.
constexpr std::size_t prepared_buffers = 4;

struct post_office {
  std::mutex mutex;
  buffer_pool pool;
  bool claimed = false;
  std::shared_ptr<intake const> taking;
};

/// Never destroyed: CUPTI hands over its last buffers when the process ends.
post_office& office() {
  static auto& the_office = *new post_office;
  return the_office;
}

}  // namespace

bool claim() {
  std::scoped_lock const lock{office().mutex};
  if (office().claimed) { return false; }
  office().pool.prepare(prepared_buffers);
  office().claimed = true;
  return true;
}

void attach(std::shared_ptr<intake const> taking) {
  std::scoped_lock const lock{office().mutex};
  office().taking = std::move(taking);
}

void release() noexcept {
  std::shared_ptr<intake const> ended;  // let go of without the lock
  std::scoped_lock const lock{office().mutex};
  ended = std::move(office().taking);
  office().claimed = false;
  office().pool.shrink();
}

void lend_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* records) noexcept {
  std::scoped_lock const lock{office().mutex};
  *buffer = office().taking ? office().pool.lend() : nullptr;
  *bytes = *buffer == nullptr ? 0 : buffer_pool::buffer_bytes;
  *records = 0;  // as many as it holds
}

void receive_buffer(CUcontext /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer,
                    std::size_t /*bytes*/, std::size_t valid_bytes) noexcept {
  std::shared_ptr<intake const> taking;
  {
    std::scoped_lock const lock{office().mutex};
    if (!office().pool.is_lent(buffer)) { return; }
    taking = office().taking;
  }
  if (taking) { taking->into->read(taking->call, taking->reader, buffer, valid_bytes); }
  std::scoped_lock const lock{office().mutex};
  office().pool.take_back(buffer);
  if (!office().claimed) { office().pool.shrink(); }
}

}  // namespace pyxfer::trace
