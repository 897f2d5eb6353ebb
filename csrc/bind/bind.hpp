#pragma once

#include "cuda/stream.hpp"
#include "trace/library.hpp"

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

/// One function a family of names. No logic here: words become types, results become objects, and
/// the GIL is released around everything that may block.
namespace pyxfer {

void bind_errors();
void bind_device(pybind11::module_& module);
void bind_memory(pybind11::module_& module);
void bind_stream(pybind11::module_& module);
void bind_copy(pybind11::module_& module);
void bind_ring(pybind11::module_& module);
void bind_dlpack(pybind11::module_& module);
void bind_trace(pybind11::module_& module);

/// What the module calls itself, and what only one of the two modules has; each defines its own.
char const* runtime_word();
void bind_runtime_own(pybind11::module_& module);

/// Where its runtime's records come from, of the libraries that were asked for; each defines its
/// own.
std::vector<trace::candidate> trace_candidates(std::vector<std::string> const& libraries);

/// Somebody's stream, of which Python knows the handle.
[[nodiscard]] inline stream_view view_of(std::uintptr_t handle) {
  return stream_view{reinterpret_cast<CUstream>(handle)};
}

using release_gil = pybind11::call_guard<pybind11::gil_scoped_release>;

/// The class of something that its destructor releases. The GIL is released around the destructor
/// too: CUDA waits for the device before it frees memory, and the device may wait for a host
/// function that needs the GIL.
template <typename Owner>
[[nodiscard]] pybind11::class_<Owner> owner_class(pybind11::module_& module, char const* name) {
  return {module, name, pybind11::module_local(), pybind11::is_final(),
          pybind11::release_gil_before_calling_cpp_dtor()};
}

}  // namespace pyxfer
