#include "slow_allocations.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>

namespace pyxfer::tests {
namespace {

std::atomic<bool> are_slow{false};
std::atomic<unsigned int> made{0};

constexpr unsigned int period = 64;
constexpr std::chrono::microseconds delay{50};

}  // namespace

slow_allocations::slow_allocations() { are_slow = true; }
slow_allocations::~slow_allocations() { are_slow = false; }

void delay_allocation() {
  if (are_slow && ++made % period == 0) { std::this_thread::sleep_for(delay); }
}

}  // namespace pyxfer::tests

// The library's array forms of the operators call these.
void* operator new(std::size_t bytes) {
  pyxfer::tests::delay_allocation();
  if (void* const found = std::malloc(bytes == 0 ? 1 : bytes)) { return found; }
  throw std::bad_alloc{};
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
