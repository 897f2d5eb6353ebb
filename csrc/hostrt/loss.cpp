#include "loss.hpp"

#include <atomic>
#include <limits>

#include "injection.hpp"
#include "stream_registry.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {
namespace {

std::atomic<int> lost_with{cudaSuccess};
std::atomic<std::uint64_t> epoch{0};
/// A bit for each device.
std::atomic<std::uint32_t> destroyed_contexts{0};
static_assert(max_devices <= std::numeric_limits<std::uint32_t>::digits);

std::uint32_t bit_of(int device) noexcept {
  return std::uint32_t{1} << static_cast<unsigned>(device);
}

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

bool context_destroyed(int device) noexcept { return (destroyed_contexts & bit_of(device)) != 0; }

void set_context_destroyed(int device) noexcept { destroyed_contexts |= bit_of(device); }

void restore_contexts() noexcept { destroyed_contexts = 0; }

std::shared_mutex& memory_in_use() {
  static auto& mutex = *new std::shared_mutex;
  return mutex;
}

void await_last_touch() { std::unique_lock const lock{memory_in_use()}; }

}  // namespace pyxfer::hostrt
