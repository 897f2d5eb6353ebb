#include "activity_buffers.hpp"

#include <cstring>
#include <utility>

namespace pyxfer::hostrt {

void activity_buffers::set_reader(cupti::buffer_requested requested,
                                  cupti::buffer_completed completed) {
  std::scoped_lock const lock{mutex_};
  requested_ = requested;
  completed_ = completed;
}

void activity_buffers::append(void const* record, std::size_t bytes) noexcept {
  std::scoped_lock const lock{mutex_};
  if (!has_room(bytes)) {
    ++dropped_;
    return;
  }
  std::memcpy(buffer_ + used_, record, bytes);
  used_ += bytes;
}

void activity_buffers::flush() noexcept {
  std::scoped_lock const lock{mutex_};
  hand_over();
}

bool activity_buffers::has_room(std::size_t bytes) noexcept {
  if (requested_ == nullptr) return false;
  if (buffer_ != nullptr && used_ + bytes > bytes_) hand_over();
  if (buffer_ == nullptr) {
    std::size_t records = 0;
    requested_(&buffer_, &bytes_, &records);
  }
  return buffer_ != nullptr && used_ + bytes <= bytes_;
}

void activity_buffers::hand_over() noexcept {
  auto* const buffer = std::exchange(buffer_, nullptr);
  auto const used = std::exchange(used_, 0);
  if (buffer != nullptr) completed_(nullptr, 0, buffer, bytes_, used);
}

activity_buffers& buffers() {
  static auto& the_buffers = *new activity_buffers;
  return the_buffers;
}

}  // namespace pyxfer::hostrt
