#include "loss.hpp"

#include <atomic>

#include "stream_registry.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {
namespace {

std::atomic<int> lost_with{cudaSuccess};
std::atomic<std::uint64_t> epoch{0};

}  // namespace

cudaError_t loss_code() noexcept { return static_cast<cudaError_t>(lost_with.load()); }

std::uint64_t loss_epoch() noexcept { return epoch.load(); }

void lose(cudaError_t code) {
  lost_with = code;
  ++epoch;
  wake_pauses();
  streams().wake_all();
}

void restore_device() noexcept {
  if (!device_lost()) return;
  ++epoch;
  lost_with = cudaSuccess;
}

std::shared_mutex& memory_in_use() {
  static auto& mutex = *new std::shared_mutex;
  return mutex;
}

void await_last_touch() { std::unique_lock const lock{memory_in_use()}; }

}  // namespace pyxfer::hostrt
