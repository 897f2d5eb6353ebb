#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "trace/cupti.hpp"

namespace pyxfer::hostrt {

/// Where records are written: the buffers of whoever has registered to read them.
class activity_buffers {
 public:
  void set_reader(cupti::buffer_requested requested, cupti::buffer_completed completed);
  void append(void const* record, std::size_t bytes) noexcept;
  /// Hands over what is written.
  void flush() noexcept;

  void lose(std::size_t records) noexcept { dropped_ += records; }
  /// How many records found no buffer since this was last asked.
  [[nodiscard]] std::size_t take_dropped() noexcept { return dropped_.exchange(0); }

 private:
  void hand_over() noexcept;
  [[nodiscard]] bool has_room(std::size_t bytes) noexcept;

  // Held during the reader's functions too: a flush has to wait for a buffer on its way.
  std::mutex mutex_;
  cupti::buffer_requested requested_ = nullptr;
  cupti::buffer_completed completed_ = nullptr;
  std::uint8_t* buffer_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t used_ = 0;
  std::atomic<std::size_t> dropped_{0};
};

[[nodiscard]] activity_buffers& buffers();

}  // namespace pyxfer::hostrt
