#pragma once

#include "cuda/error.hpp"
#include "cuda/wait.hpp"

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <exception>
#include <utility>

namespace pyxfer {

/// Runs a blocking operation that Ctrl-C can end: while the main thread waits it runs Python's
/// signal handlers, and an exception that they raise ends the operation. Other threads do not take
/// the GIL here, because during finalization that call would not return.
template <typename Operation>
auto run_interruptibly(Operation const& operation) -> decltype(operation(interruption{})) {
  thread_local bool const is_main_thread = ::gettid() == ::getpid();
  if (!is_main_thread) { return operation(interruption{}); }
  std::exception_ptr raised;
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
  }
  if (raised) {  // even if the operation has just ended
    // Signals that came since belong to the same interruption. Their exceptions could otherwise be
    // raised in a destructor.
    pybind11::gil_scoped_acquire const held;
    while (PyErr_CheckSignals() != 0) { PyErr_Clear(); }
    std::rethrow_exception(raised);
  }
  return taken;
}

}  // namespace pyxfer
