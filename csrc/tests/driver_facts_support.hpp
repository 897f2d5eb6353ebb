#pragma once

#include "driver_facts.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// What the questions to a driver are made of.
namespace pyxfer::facts {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

inline constexpr std::size_t kib = 1024;
inline constexpr std::size_t mib = kib * kib;
inline constexpr std::size_t page = 4096;
inline constexpr auto held_for = 200ms;

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

template <typename Action>
std::string at_once_or_waits(Action const& action) {
  auto const begin = clock::now();
  action();
  return clock::now() - begin < held_for / 2 ? "at once" : "waits";
}

/// Holds a stream for a while. A call that waits for it returns without help.
inline void hold(cudaStream_t stream) {
  static_cast<void>(cudaLaunchHostFunc(
      stream, [](void* /*unused*/) { std::this_thread::sleep_for(held_for); }, nullptr));
}

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

/// Reports the answers. Its streams and its event are there for every question.
class questions {
 public:
  explicit questions(std::function<void(fact const&)> report) : report_{std::move(report)} {}

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

void ask_of_captures(questions& all);
void ask_of_captured_streams(questions& all);
void ask_of_registrations(questions& all);
void ask_of_pointers(questions& all);
void ask_of_read_only_memory(questions& all);
void ask_of_pageable_copies(questions& all);
void ask_of_releases(questions& all);
void ask_of_streams_and_events(questions& all);
void ask_of_threads_without_a_context(questions& all);

}  // namespace pyxfer::facts
