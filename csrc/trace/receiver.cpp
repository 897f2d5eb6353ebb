#include "trace/receiver.hpp"

#include "trace/parse.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

namespace pyxfer::trace {
namespace {

void free_buffer(std::uint8_t* buffer) noexcept { unmap_pages(buffer, buffer_pool::buffer_bytes); }

}  // namespace

buffer_pool::~buffer_pool() {
  shrink();
  for (auto* const buffer : lent_) { free_buffer(buffer); }
}

std::uint8_t* buffer_pool::make() noexcept {
  if (idle_.size() + lent_.size() >= most_buffers) { return nullptr; }
  return static_cast<std::uint8_t*>(map_pages(buffer_bytes, true));
}

void buffer_pool::prepare(std::size_t count) {
  idle_.reserve(most_buffers);
  lent_.reserve(most_buffers);
  while (idle_.size() < count) {
    auto* const made = make();
    if (made == nullptr) { return; }
    idle_.push_back(made);
  }
}

std::uint8_t* buffer_pool::lend() noexcept {
  auto* const found = idle_.empty() ? make() : idle_.back();
  if (found == nullptr) { return nullptr; }
  if (!idle_.empty()) { idle_.pop_back(); }
  lent_.push_back(found);  // does not allocate: `prepare` reserved the room
  return found;
}

bool buffer_pool::is_lent(std::uint8_t const* buffer) const noexcept {
  return std::find(lent_.begin(), lent_.end(), buffer) != lent_.end();
}

void buffer_pool::take_back(std::uint8_t* buffer) noexcept {
  auto const found = std::find(lent_.begin(), lent_.end(), buffer);
  if (found == lent_.end()) { return; }
  lent_.erase(found);
  idle_.push_back(buffer);
}

void buffer_pool::shrink() noexcept {
  for (auto* const buffer : idle_) { free_buffer(buffer); }
  idle_.clear();
}

namespace {

/// Prepared in advance, so that no page of a buffer is touched first inside a recorded call.
constexpr std::size_t prepared_buffers = 4;

struct receiver_state {
  std::mutex mutex;
  buffer_pool pool;
  bool claimed = false;
  std::shared_ptr<intake const> taking;
};

/// Never destroyed: CUPTI hands over its last buffers when the process ends.
receiver_state& receiver() {
  static auto& the_receiver = *new receiver_state;
  return the_receiver;
}

}  // namespace

bool claim() {
  std::scoped_lock const lock{receiver().mutex};
  if (receiver().claimed) { return false; }
  receiver().pool.prepare(prepared_buffers);
  receiver().claimed = true;
  return true;
}

void attach(std::shared_ptr<intake const> taking) {
  std::scoped_lock const lock{receiver().mutex};
  receiver().taking = std::move(taking);
}

void release() noexcept {
  std::shared_ptr<intake const> ended;  // destroyed after the lock is released
  std::scoped_lock const lock{receiver().mutex};
  ended = std::move(receiver().taking);
  receiver().claimed = false;
  receiver().pool.shrink();
}

void lend_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* records) noexcept {
  std::scoped_lock const lock{receiver().mutex};
  *buffer = receiver().taking ? receiver().pool.lend() : nullptr;
  *bytes = *buffer == nullptr ? 0 : buffer_pool::buffer_bytes;
  *records = 0;  // as many as it holds
}

void receive_buffer(CUcontext /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer,
                    std::size_t /*bytes*/, std::size_t valid_bytes) noexcept {
  std::shared_ptr<intake const> taking;
  {
    std::scoped_lock const lock{receiver().mutex};
    if (!receiver().pool.is_lent(buffer)) { return; }
    taking = receiver().taking;
  }
  if (taking) { taking->into->read(taking->call, taking->reader, buffer, valid_bytes); }
  std::scoped_lock const lock{receiver().mutex};
  receiver().pool.take_back(buffer);
  if (!receiver().claimed) { receiver().pool.shrink(); }
}

}  // namespace pyxfer::trace
