#include "activity_calls.hpp"

#include <array>
#include <atomic>
#include <string>
#include <string_view>

#include "calls.hpp"
#include "thread_state.hpp"

namespace pyxfer::hostrt {
namespace {

using cupti::domain;

struct nested_call {
  std::string_view runtime;
  char const* driver;
};

/// What the real runtime calls of the driver.
constexpr std::array nested_calls{
    nested_call{"cudaDeviceSynchronize", "cuCtxSynchronize"},
    nested_call{"cudaMalloc", "cuMemAlloc_v2"},
    nested_call{"cudaFree", "cuMemFree_v2"},
    nested_call{"cudaHostAlloc", "cuMemHostAlloc"},
    nested_call{"cudaFreeHost", "cuMemFreeHost"},
    nested_call{"cudaHostRegister", "cuMemHostRegister_v2"},
    nested_call{"cudaHostUnregister", "cuMemHostUnregister"},
    nested_call{"cudaMemset", "cuMemsetD8_v2"},
    nested_call{"cudaMemsetAsync", "cuMemsetD8Async"},
    nested_call{"cudaMemcpy", "cuMemcpy"},
    nested_call{"cudaMemcpyAsync", "cuMemcpyAsync"},
    nested_call{"cudaMemcpyBatchAsync", "cuMemcpyBatchAsync"},
    nested_call{"cudaStreamSynchronize", "cuStreamSynchronize"},
    nested_call{"cudaLaunchHostFunc", "cuLaunchHostFunc"},
};

constexpr std::size_t call_count = all_calls.size();

constexpr bool is_of_runtime(std::string_view name) { return name.substr(0, 4) == "cuda"; }

constexpr char const* nested_in(std::string_view name) {
  for (auto const& each : nested_calls) {
    if (each.runtime == name) return each.driver;
  }
  return nullptr;
}

using name_list = std::array<std::string, call_count>;

name_list names_of(domain of) {
  name_list names;
  for (std::size_t call = 0; call < call_count; ++call) {
    auto const name = all_calls[call].name;
    auto const* const nested = nested_in(name);
    auto& made = names[call];
    made = "unused";
    if (of == domain::runtime && is_of_runtime(name)) made = std::string{name} + "_v3020";
    if (of == domain::driver && !is_of_runtime(name)) made = name;
    if (of == domain::driver && nested != nullptr) made = nested;
  }
  return names;
}

/// A kind is switched on with all of its calls, which can then be switched off one by one.
struct calls_of_domain {
  std::array<std::atomic<bool>, call_count> off{};

  void switch_all_on() noexcept {
    for (auto& one : off) one = false;
  }
};

calls_of_domain& calls_of(domain of) {
  static auto& runtime = *new calls_of_domain;
  static auto& driver = *new calls_of_domain;
  return of == domain::runtime ? runtime : driver;
}

cupti::activity_kind kind_of(domain of) noexcept {
  return of == domain::runtime ? cupti::activity_kind::runtime_call
                               : cupti::activity_kind::driver_call;
}

bool is_recorded(domain of, std::size_t call) noexcept {
  return tracing(kind_of(of)) && !calls_of(of).off[call].load(std::memory_order_relaxed);
}

}  // namespace

char const* callback_name(domain of, std::uint32_t callback) {
  static auto const& runtime = *new name_list{names_of(domain::runtime)};
  static auto const& driver = *new name_list{names_of(domain::driver)};
  if (callback == 0) return "INVALID";
  if (callback > call_count) return nullptr;
  return (of == domain::runtime ? runtime : driver)[callback - 1].c_str();
}

void enable_call(domain of, std::uint32_t callback, bool enable) {
  // The real library has no effect for it where the kind is off and there is a context.
  if (tracing(kind_of(of))) calls_of(of).off.at(callback - 1) = !enable;
}

void enable_all_calls(domain of, bool enable) {
  if (enable) {
    calls_of(of).switch_all_on();
    enabled_kinds() |= bit_of(kind_of(of));
  } else {
    enabled_kinds() &= ~bit_of(kind_of(of));
  }
}

recorded_call::recorded_call(std::size_t call) noexcept : call_{call}, begin_{steady::now()} {
  this_thread().correlation = next_correlation();
}

recorded_call::~recorded_call() { this_thread().correlation = 0; }

void recorded_call::returned(cudaError_t code) const noexcept {
  activity_span const when{begin_, steady::now()};
  auto const id = static_cast<std::uint32_t>(call_ + 1);
  auto const name = all_calls.at(call_).name;
  auto const correlation = this_thread().correlation;
  auto const result = static_cast<int>(code);
  auto const in_driver = !is_of_runtime(name) || nested_in(name) != nullptr;
  if (in_driver && is_recorded(domain::driver, call_)) {
    emit_call(domain::driver, id, when, correlation, result);
  }
  if (is_of_runtime(name) && is_recorded(domain::runtime, call_)) {
    emit_call(domain::runtime, id, when, correlation, result);
  }
}

}  // namespace pyxfer::hostrt
