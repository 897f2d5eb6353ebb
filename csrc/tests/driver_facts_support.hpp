#pragma once

#include "driver_facts.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// Helpers for queries to a driver.
namespace pyxfer::facts {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

inline constexpr std::size_t kib = 1024;
inline constexpr std::size_t mib = kib * kib;
inline constexpr std::size_t page = 4096;

template <typename... Arguments>
CUresult driver(char const* symbol, Arguments... arguments) {
  constexpr unsigned int api = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  auto const code =
      cudaGetDriverEntryPointByVersion(symbol, &function, api, cudaEnableDefault, &found);
  if (code != cudaSuccess || function == nullptr) { return CUDA_ERROR_NOT_FOUND; }
  return reinterpret_cast<CUresult (*)(Arguments...)>(function)(arguments...);
}

template <typename Code>
std::string text(Code code) {
  return std::to_string(static_cast<int>(code));
}

template <typename Action>
auto in_another_thread(Action const& action) {
  return std::async(std::launch::async, action).get();
}

/// Holds a stream for a limited time, so that a call that waits for it returns.
class holding {
 public:
  /// A busy machine delays a call that does not wait: give it a long time.
  explicit holding(cudaStream_t on, clock::duration limit = 200ms) : limit_{limit} {
    auto const hold = [](void* self) { static_cast<holding*>(self)->hold(); };
    if (cudaLaunchHostFunc(on, hold, this) != cudaSuccess) { ended_ = true; }
  }
  holding(holding const&) = delete;
  holding& operator=(holding const&) = delete;
  holding(holding&&) = delete;
  holding& operator=(holding&&) = delete;
  ~holding() {
    release();
    while (!ended_) { std::this_thread::yield(); }
  }

  void release() noexcept { released_ = true; }
  template <typename Action>
  std::string at_once_or_waits(Action const& action) const {
    action();
    return ended_ ? "waits" : "at once";
  }

 private:
  void hold() noexcept {
    auto const end = clock::now() + limit_;
    while (!released_ && clock::now() < end) { std::this_thread::sleep_for(1ms); }
    ended_ = true;
  }

  clock::duration limit_;
  std::atomic<bool> released_{false};
  std::atomic<bool> ended_{false};
};

inline constexpr auto long_enough = 30s;

inline cudaStream_t make_stream(unsigned int flags = cudaStreamNonBlocking) {
  cudaStream_t made = nullptr;
  static_cast<void>(cudaStreamCreateWithFlags(&made, flags));
  return made;
}

inline CUevent make_event() {
  CUevent made = nullptr;
  static_cast<void>(driver("cuEventCreate", &made, unsigned{CU_EVENT_DEFAULT}));
  return made;
}

inline void destroy(cudaStream_t stream) { static_cast<void>(cudaStreamDestroy(stream)); }
inline void destroy(CUevent event) { static_cast<void>(driver("cuEventDestroy", event)); }

inline CUresult record(CUevent event, cudaStream_t on) {
  return driver("cuEventRecord", event, static_cast<CUstream>(on));
}

inline CUresult query(CUevent event) { return driver("cuEventQuery", event); }

inline CUresult make_wait(cudaStream_t waiting, CUevent event) {
  return driver("cuStreamWaitEvent", static_cast<CUstream>(waiting), event, 0U);
}

/// Reports the facts. All queries use its streams and its event.
class fact_report {
 public:
  explicit fact_report(std::function<void(fact const&)> report) : report_{std::move(report)} {}

  void add(std::string name, std::string relied_on, std::string found) {
    report_({std::move(name), std::move(relied_on), std::move(found)});
    static_cast<void>(cudaGetLastError());
  }

  cudaStream_t const on{make_stream()};
  cudaStream_t const other{make_stream()};
  CUevent const event{make_event()};

 private:
  std::function<void(fact const&)> report_;
};

void check_captures(fact_report& all);
void check_captured_streams(fact_report& all);
void check_registrations(fact_report& all);
void check_pointers(fact_report& all);
void check_direct_access(fact_report& all);
void check_read_only_memory(fact_report& all);
void check_pageable_copies(fact_report& all);
void check_kernels(fact_report& all);
void check_peers(fact_report& all);
void check_releases(fact_report& all);
void check_streams_and_events(fact_report& all);
void check_threads_without_a_context(fact_report& all);

}  // namespace pyxfer::facts
