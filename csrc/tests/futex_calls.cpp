#include "futex_calls.hpp"

#include <dlfcn.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <utility>

namespace pyxfer::tests {
namespace {

std::atomic<futex_calls const*> watching{nullptr};

}  // namespace

futex_calls::futex_calls(std::function<void()> sleeping, std::function<void()> waking)
    : before_sleep{std::move(sleeping)}, after_wake{std::move(waking)} {
  watching = this;
}
futex_calls::~futex_calls() { watching = nullptr; }

futex_calls const* watched(long number, long operation, long wanted) {
  return number == SYS_futex && operation == wanted ? watching.load() : nullptr;
}

}  // namespace pyxfer::tests

/// Instead of the C library's, which it calls.
// NOLINTNEXTLINE(cert-dcl50-cpp)
extern "C" long syscall(long number, ...) noexcept {
  using namespace pyxfer::tests;
  std::array<long, 6> given{};
  va_list arguments;
  va_start(arguments, number);
  for (auto& each : given) { each = va_arg(arguments, long); }
  va_end(arguments);
  if (auto const* const calls = watched(number, given[1], FUTEX_WAIT_PRIVATE)) {
    calls->before_sleep();
  }
  // Looked up every time: the guard of a static variable may call `syscall` itself.
  auto* const library = reinterpret_cast<long (*)(long, ...)>(::dlsym(RTLD_NEXT, "syscall"));
  auto const result = library(number, given[0], given[1], given[2], given[3], given[4], given[5]);
  if (auto const* const calls = watched(number, given[1], FUTEX_WAKE_PRIVATE)) {
    calls->after_wake();
  }
  return result;
}
