#pragma once

#include "cuda/stream.hpp"
#include "trace/library.hpp"

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
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

/// The GIL is released while it exists.
///
/// A thread that asks for the GIL while the interpreter ends is ended inside that call (up to
/// Python 3.13), by an unwinding that C++ destructors turn into an abort. So from
/// `park_threads_at_exit` on a thread that would come back sleeps instead, to the end of the
/// process.
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

/// For the thread that ends the interpreter, which comes back itself: returns when no other thread
/// is about to come back, or after `seconds`.
void park_threads_at_exit(double seconds);

using release_gil = pybind11::call_guard<gil_released>;

/// Deletes without the GIL: CUDA waits for the device before it frees memory, and the device may
/// wait for a host function that needs the GIL.
template <typename Owner>
struct delete_without_gil {
  void operator()(Owner* owned) const {
    pybind11::error_scope const kept;  // an object may go while an exception is on its way
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

/// The class of something that its destructor releases.
template <typename Owner>
using owner_class = pybind11::class_<Owner, owned<Owner>>;

}  // namespace pyxfer
