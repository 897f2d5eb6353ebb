#include "trace/buffers.hpp"

#include "trace/mapped.hpp"

#include <algorithm>

namespace pyxfer::trace {
namespace {

void free_buffer(std::uint8_t* buffer) noexcept { unmap_pages(buffer, buffer_pool::buffer_bytes); }

}  // namespace

buffer_pool::~buffer_pool() {
  shrink();
  for (auto* const each : lent_) { free_buffer(each); }
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
  lent_.push_back(found);  // within what `prepare` reserved
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
  for (auto* const each : idle_) { free_buffer(each); }
  idle_.clear();
}

}  // namespace pyxfer::trace
