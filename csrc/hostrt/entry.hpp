#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <new>
#include <system_error>
#include <type_traits>

#include "activity_calls.hpp"
#include "calls.hpp"
#include "delay.hpp"
#include "thread_state.hpp"

namespace pyxfer::hostrt {

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

}  // namespace pyxfer::hostrt
