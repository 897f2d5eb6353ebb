#pragma once

#include "cuda/stream.hpp"
#include "trace/library.hpp"

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// Each function binds one group of names. Bindings contain no logic: they convert words to types
/// and results to objects, and release the GIL around calls that may block.
namespace pyxfer {

void bind_errors();
void bind_device(pybind11::module_& module);
void bind_memory(pybind11::module_& module);
void bind_stream(pybind11::module_& module);
void bind_copy(pybind11::module_& module);
void bind_ring(pybind11::module_& module);
void bind_dlpack(pybind11::module_& module);
void bind_trace(pybind11::module_& module);
void bind_links(pybind11::module_& module);
void bind_blocks(pybind11::module_& module);

/// The module's name for its runtime, and the bindings that only one of the two modules has. Each
/// module defines both.
char const* runtime_word();
void bind_runtime_own(pybind11::module_& module);

/// The candidates for the libraries that the caller names. Each module defines it.
std::vector<trace::candidate> trace_candidates(std::vector<std::string> const& libraries);

/// The stream of a handle that Python passes as an integer.
[[nodiscard]] inline stream_view view_of(std::uintptr_t handle) {
  return stream_view{reinterpret_cast<CUstream>(handle)};
}
[[nodiscard]] inline std::optional<stream_view> stream_of(std::optional<std::uintptr_t> handle) {
  if (!handle) { return std::nullopt; }
  return view_of(*handle);
}

/// Releases the GIL while it exists.
///
/// Up to Python 3.13, a thread that requests the GIL during finalization is ended inside that call,
/// and the unwinding aborts the process at the first C++ destructor. So after
/// `park_threads_at_exit` a thread that would take the GIL back sleeps instead, until the process
/// ends.
class gil_released {
 public:
  gil_released() : state_{PyEval_SaveThread()} {}
  ~gil_released();
  gil_released(gil_released const&) = delete;
  gil_released& operator=(gil_released const&) = delete;
  gil_released(gil_released&&) = delete;
  gil_released& operator=(gil_released&&) = delete;

 private:
  PyThreadState* state_;
};

/// Called by the thread that finalizes the interpreter, which can still take the GIL. Returns when
/// no other thread is about to take the GIL back, or after `seconds`.
void park_threads_at_exit(double seconds);

using release_gil = pybind11::call_guard<gil_released>;

/// Deletes without the GIL, because CUDA waits for the device before it frees memory, and the
/// device may wait for a host function that needs the GIL.
template <typename Owner>
struct delete_without_gil {
  void operator()(Owner* owned) const {
    pybind11::error_scope const kept;  // keeps an exception that is being raised
    gil_released const released;
    delete owned;
  }
};

template <typename Owner>
using owned = std::unique_ptr<Owner, delete_without_gil<Owner>>;

template <typename Owner, typename... Arguments>
[[nodiscard]] owned<Owner> make_owned(Arguments&&... arguments) {
  return owned<Owner>{new Owner{std::forward<Arguments>(arguments)...}};
}

/// A class whose objects release something in their destructors.
template <typename Owner>
using owner_class = pybind11::class_<Owner, owned<Owner>>;

}  // namespace pyxfer
