#pragma once

#include "cuda/error.hpp"
#include "cuda/wait.hpp"

#include <pybind11/detail/exception_translation.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <exception>
#include <utility>

namespace pyxfer {

/// Makes the C++ exception `fault` the cause of a Python exception. The GIL is held.
inline void set_cause(std::exception_ptr const& raised, std::exception_ptr const& fault) {
  try {
    std::rethrow_exception(fault);
  } catch (...) { pybind11::detail::try_translate_exceptions(); }
  pybind11::error_already_set const cause;
  try {
    std::rethrow_exception(raised);
  } catch (pybind11::error_already_set const& error) {
    auto const& value = cause.value();
    PyException_SetCause(error.value().ptr(), value.inc_ref().ptr());  // it takes the reference
  }
}

/// Runs a blocking operation that Ctrl-C can end: while the main thread waits it runs Python's
/// signal handlers, and an exception that they raise ends the operation. If the operation ends with
/// an error of its own, that is the cause of the exception. Other threads do not take the GIL here,
/// because during finalization that call would not return.
template <typename Operation>
auto run_interruptibly(Operation const& operation) -> decltype(operation(interruption{})) {
  thread_local bool const is_main_thread = ::gettid() == ::getpid();
  if (!is_main_thread) { return operation(interruption{}); }
  std::exception_ptr raised;
  std::exception_ptr fault;
  decltype(operation(interruption{})) taken{};
  try {
    taken = operation([&raised] {
      pybind11::gil_scoped_acquire const held;
      if (PyErr_CheckSignals() == 0) { return false; }
      raised = std::make_exception_ptr(pybind11::error_already_set());
      return true;
    });
  } catch (cancelled_error const&) {
    if (!raised) { throw; }
  } catch (...) {
    if (!raised) { throw; }
    fault = std::current_exception();
  }
  if (raised) {  // even if the operation has just ended
    // Signals that came since belong to the same interruption. Their exceptions could otherwise be
    // raised in a destructor.
    pybind11::gil_scoped_acquire const held;
    while (PyErr_CheckSignals() != 0) { PyErr_Clear(); }
    if (fault) { set_cause(raised, fault); }
    std::rethrow_exception(raised);
  }
  return taken;
}

}  // namespace pyxfer
