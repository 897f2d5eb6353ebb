#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace pyxfer {

/// A line of callers, who are served in the order in which they came.
class turns {
 public:
  /// A place in the line. It is kept until it goes; the next one comes then.
  class turn {
   public:
    turn(turns& line, std::uint64_t number) noexcept : line_{&line}, number_{number} {}
    ~turn();
    turn(turn&& other) noexcept;
    turn& operator=(turn&& other) = delete;
    turn(turn const&) = delete;
    turn& operator=(turn const&) = delete;

    /// Returns when it is this one's turn. Throws `cancelled_error` where the line was abandoned.
    void await();

   private:
    turns* line_;  ///< null when it was moved from
    std::uint64_t number_;
  };

  /// Throws std::logic_error when the line is closed.
  [[nodiscard]] turn take();
  /// Closes the line: whoever comes later, for anything but to close it too, is refused.
  [[nodiscard]] turn take_last();
  /// The same, and nobody waits any more.
  void abandon() noexcept;

 private:
  std::mutex lock_;
  std::condition_variable moved_;
  std::uint64_t given_{0};
  std::uint64_t served_{0};
  bool closed_{false};
  bool abandoned_{false};
};

}  // namespace pyxfer
