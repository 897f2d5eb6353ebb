#include "ring/bell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pyxfer {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t) &&
                  std::atomic<std::uint32_t>::is_always_lock_free,
              "the kernel compares the number itself");

void bell::sleep(std::uint32_t since) noexcept {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): there is no other way to it
  ::syscall(SYS_futex, &rings_, FUTEX_WAIT_PRIVATE, since, nullptr, nullptr, 0);
}

void bell::ring(int most) noexcept {
  ++rings_;
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg)
  ::syscall(SYS_futex, &rings_, FUTEX_WAKE_PRIVATE, most, nullptr, nullptr, 0);
}

}  // namespace pyxfer
