#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "activity.hpp"
#include "injection.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {

/// The runtime's state for a calling thread.
struct thread_state {
  int device = 0;
  bool has_context = false;
  bool in_host_function = false;
  cudaError_t last_error = cudaSuccess;
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
  /// The id of the call that is being made, if it is recorded.
  std::uint32_t correlation = 0;
};

inline thread_state& this_thread() noexcept {
  thread_local thread_state state;
  return state;
}

/// Whether a call's body may run. If `code` is an error, the call returns it in either case.
struct admission {
  cudaError_t code;
  ordered_delay delay;
  bool may_run;
};

[[nodiscard]] admission admit(std::size_t call);

/// Runs a call's body. A body that takes an `ordered_delay` is asynchronous, and waits for it on
/// its stream. For every other body the call itself waits.
template <std::size_t Call, typename Body>
cudaError_t unrecorded(Body const& body) noexcept {
  try {
    auto const admitted = admit(Call);
    if (!admitted.may_run) return admitted.code;
    auto result = cudaSuccess;
    if constexpr (std::is_invocable_v<Body const&, ordered_delay const&>) {
      result = body(admitted.delay);
    } else {
      admitted.delay.serve();
      result = body();
    }
    return admitted.code != cudaSuccess ? admitted.code : result;
  } catch (std::bad_alloc const&) {
    return cudaErrorMemoryAllocation;
  } catch (std::system_error const& error) {
    // EAGAIN: no memory for the stack of a thread, or a limit of this process
    return error.code().value() == EAGAIN ? cudaErrorMemoryAllocation : cudaErrorOperatingSystem;
  }
}

/// The same, and records the call if a tracer runs.
template <std::size_t Call, typename Body>
cudaError_t guarded(Body const& body) noexcept {
  if (!tracing()) return unrecorded<Call>(body);
  recorded_call const recorded{Call};
  auto const result = unrecorded<Call>(body);
  recorded.returned(result);
  return result;
}

/// `guarded` for a runtime call, which stores its error for cudaGetLastError.
template <std::size_t Call, typename Body>
cudaError_t runtime_call(Body const& body) noexcept {
  auto const result = guarded<Call>(body);
  if (result != cudaSuccess) this_thread().last_error = result;
  return result;
}

/// `guarded` for a driver call. Codes that runtime and driver share have the same numbers.
template <std::size_t Call, typename Body>
CUresult driver_call(Body const& body) noexcept {
  return static_cast<CUresult>(guarded<Call>(body));
}

/// What the headers and the real runtime say about a code; null where they say nothing.
struct error_text {
  char const* runtime_name = nullptr;
  char const* driver_name = nullptr;
  char const* text = nullptr;
};

[[nodiscard]] error_text find_error(int code) noexcept;

/// A function that a library of this runtime exports.
struct exported {
  template <typename Function>
  exported(std::string_view symbol, Function* implementation)
      : name{symbol}, function{reinterpret_cast<void*>(implementation)} {}

  std::string_view name;
  void* function;
};

/// The function of that name; null if the table does not have it.
template <typename Table>
[[nodiscard]] void* find_exported(Table const& table, std::string_view symbol) noexcept {
  for (exported const& each : table) {
    if (each.name == symbol) return each.function;
  }
  return nullptr;
}

/// The driver call of that name; null if this library does not have it.
[[nodiscard]] void* driver_function(std::string_view symbol) noexcept;

}  // namespace pyxfer::hostrt
