#include "bind/bind.hpp"
#include "cuda/error.hpp"
#include "ring/files.hpp"
#include "trace/error.hpp"

#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

namespace py = pybind11;

namespace pyxfer {
namespace {

py::object error_class(char const* name) { return py::module_::import("pyxfer.errors").attr(name); }

void raise(char const* class_name, char const* text) {
  auto const kind = error_class(class_name);
  py::set_error(kind, text);
}

void raise(char const* class_name, cuda_error const& error) {
  auto const kind = error_class(class_name);
  auto const made = kind(error.code(), error.name(), error.call(), error.where(),
                         error.description(), hint_for(error.code()));
  PyErr_SetObject(kind.ptr(), made.ptr());
}

void translate(std::exception_ptr fault) {
  try {
    std::rethrow_exception(std::move(fault));
  } catch (unavailable_error const& error) {
    raise("CudaUnavailableError", error);
  } catch (memory_error const& error) {
    raise("CudaMemoryError", error);
  } catch (device_lost_error const& error) {
    raise("DeviceLostError", error);
  } catch (kernels_unavailable_error const& error) {
    raise("KernelsUnavailableError", error);
  } catch (cuda_error const& error) {
    raise("CudaError", error);
  } catch (timeout_error const& error) {
    raise("DeviceTimeoutError", error.what());
  } catch (cancelled_error const& error) {
    raise("CancelledError", error.what());
  } catch (forked_error const& error) {
    raise("ForkedError", error.what());
  } catch (trace_unavailable_error const& error) {
    raise("TraceUnavailableError", error.what());
  } catch (file_error const& error) {
    PyErr_SetString(PyExc_OSError, error.what());
  } catch (std::system_error const& error) {
    if (error.code().value() == EAGAIN) {  // no memory for the stack of a thread, or a limit
      PyErr_SetString(PyExc_MemoryError,
                      "A thread cannot be started: free some memory, or raise the limits of memory "
                      "and of processes (ulimit -v, ulimit -u).");
      return;
    }
    auto const made =
        py::module_::import("builtins").attr("OSError")(error.code().value(), error.what());
    PyErr_SetObject(PyExc_OSError, made.ptr());
  } catch (std::bad_alloc const&) {
    PyErr_SetString(PyExc_MemoryError,
                    "Host memory ran out: ask for smaller sizes, or free some first.");
  }
}

}  // namespace

void bind_errors() {
  // pybind11's own translator is that of the first module loaded. If the C++ library compares types
  // by address, as libc++ does, it does not recognise the exceptions of another module.
  py::register_local_exception_translator(&py::detail::translate_exception);
  py::register_local_exception_translator(&translate);  // the last one is called first
}

}  // namespace pyxfer
