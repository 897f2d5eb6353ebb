#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

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

/// What the runtime keeps for every calling thread.
struct thread_state {
  int device = 0;
  bool has_context = false;
  bool in_host_function = false;
  cudaError_t last_error = cudaSuccess;
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
  /// Of the call that is being made, where it is recorded.
  std::uint32_t correlation = 0;
};

inline thread_state& this_thread() noexcept {
  thread_local thread_state state;
  return state;
}

/// Whether a call's body may run, and what the call returns if not, or in spite of it.
struct admission {
  cudaError_t code;
  ordered_delay delay;
  bool may_run;
};

[[nodiscard]] admission admit(std::size_t call);

/// Runs a call's body. A body that takes an `ordered_delay` is asynchronous and serves it on its
/// stream; for every other body the call itself is delayed.
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
  } catch (std::system_error const&) { return cudaErrorOperatingSystem; }
}

/// Runs the body of a driver call.
template <std::size_t Call, typename Body>
cudaError_t guarded(Body const& body) noexcept {
  if (!tracing()) return unrecorded<Call>(body);
  recorded_call const told{Call};
  auto const result = unrecorded<Call>(body);
  told.returned(result);
  return result;
}

/// The same for a runtime call, which remembers its error for cudaGetLastError.
template <std::size_t Call, typename Body>
cudaError_t runtime_call(Body const& body) noexcept {
  auto const result = guarded<Call>(body);
  if (result != cudaSuccess) this_thread().last_error = result;
  return result;
}

/// `guarded` for a driver call. The codes that both share have the same numbers.
template <std::size_t Call, typename Body>
CUresult driver_call(Body const& body) noexcept {
  return static_cast<CUresult>(guarded<Call>(body));
}

struct error_text {
  int code;
  char const* runtime_name;
  char const* driver_name;  ///< null when only the runtime has this code
  char const* text;
};

/// Null for a code that is not known.
[[nodiscard]] error_text const* find_error(int code) noexcept;

/// The driver call of that name; null when this library has none.
[[nodiscard]] void* driver_function(std::string_view symbol) noexcept;

}  // namespace pyxfer::hostrt
