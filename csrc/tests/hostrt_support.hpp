#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "hostrt/control.hpp"
#include "hostrt/memory.hpp"

namespace pyxfer::hostrt::testing {

using namespace std::chrono_literals;

inline constexpr std::size_t mib = std::size_t{1} << 20U;

inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Finds a driver call by its name, like the code under test.
template <typename... Arguments>
CUresult driver(char const* symbol, Arguments... arguments) {
  void* function = nullptr;
  auto found = cudaDriverEntryPointSymbolNotFound;
  EXPECT_EQ(cudaGetDriverEntryPointByVersion(symbol, &function, 12000, 0, &found), cudaSuccess);
  EXPECT_EQ(found, cudaDriverEntryPointSuccess) << symbol;
  return reinterpret_cast<CUresult (*)(Arguments...)>(function)(arguments...);
}

inline CUevent make_event(unsigned int flags = CU_EVENT_DEFAULT) {
  CUevent event = nullptr;
  EXPECT_EQ(driver("cuEventCreate", &event, flags), CUDA_SUCCESS);
  return event;
}

inline CUresult record(CUevent event, cudaStream_t stream) {
  return driver("cuEventRecord", event, static_cast<CUstream>(stream));
}

inline CUresult elapsed(float& milliseconds, CUevent start, CUevent end) {
  return driver("cuEventElapsedTime", &milliseconds, start, end);
}

/// Blocks a stream until it is opened, like the gate of a window.
class gate {
 public:
  gate() : latch_{latches().emplace_back(std::make_unique<latch>()).get()} {}
  ~gate() { open(); }
  gate(gate const&) = delete;
  gate& operator=(gate const&) = delete;
  gate(gate&&) = delete;
  gate& operator=(gate&&) = delete;

  cudaError_t close(cudaStream_t stream) { return cudaLaunchHostFunc(stream, wait, latch_); }

  void open() {
    if (!opened_) latch_->opening.set_value();
    opened_ = true;
  }

 private:
  struct latch {
    std::promise<void> opening;
    std::shared_future<void> open{opening.get_future().share()};
  };

  // Never freed: after a loss of the device it is not known when a host function has returned.
  static std::vector<std::unique_ptr<latch>>& latches() {
    static auto& kept = *new std::vector<std::unique_ptr<latch>>;
    return kept;
  }

  static void wait(void* self) { static_cast<latch*>(self)->open.wait(); }

  latch* latch_;
  bool opened_ = false;
};

/// A test starts without orders, and must not leave new allocations.
class hostrt : public ::testing::Test {
 protected:
  void SetUp() override {
    reset();
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    for (auto const& live : allocated()) before_.insert(live.address);
  }

  void TearDown() override {
    reset();
    (void)cudaSetDevice(0);
    (void)cudaDeviceSynchronize();
    for (auto* const event : events_) (void)driver("cuEventDestroy", event);
    for (auto* const stream : streams_) (void)cudaStreamDestroy(stream);
    for (auto* const memory : device_) (void)cudaFree(memory);
    for (auto* const memory : pinned_) (void)cudaFreeHost(memory);
    for (auto const& live : made()) ADD_FAILURE() << "left: " << live.kind;
  }

  cudaStream_t stream(unsigned int flags = cudaStreamNonBlocking) {
    cudaStream_t made = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&made, flags), cudaSuccess);
    return streams_.emplace_back(made);
  }

  CUevent event(unsigned int flags = CU_EVENT_DEFAULT) {
    return events_.emplace_back(make_event(flags));
  }

  std::byte* device(std::size_t bytes) {
    void* made = nullptr;
    EXPECT_EQ(cudaMalloc(&made, bytes), cudaSuccess);
    device_.push_back(made);
    return static_cast<std::byte*>(made);
  }

  std::byte* pinned(std::size_t bytes, unsigned int flags = cudaHostAllocDefault) {
    void* made = nullptr;
    EXPECT_EQ(cudaHostAlloc(&made, bytes, flags), cudaSuccess);
    pinned_.push_back(made);
    return static_cast<std::byte*>(made);
  }

  /// The allocations of this test that were not released.
  [[nodiscard]] std::vector<allocation> made() const {
    std::vector<allocation> added;
    for (auto const& live : allocated()) {
      if (before_.count(live.address) == 0) added.push_back(live);
    }
    return added;
  }

 private:
  std::set<std::uintptr_t> before_;
  std::vector<cudaStream_t> streams_;
  std::vector<CUevent> events_;
  std::vector<void*> device_;
  std::vector<void*> pinned_;
};

}  // namespace pyxfer::hostrt::testing
