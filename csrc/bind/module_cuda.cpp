#include "bind/module_body.hpp"

namespace pyxfer {

char const* runtime_word() { return "cuda"; }

void bind_runtime_own(pybind11::module_& /*module*/) {}

}  // namespace pyxfer

PYBIND11_MODULE(_cuda, module, pybind11::mod_gil_not_used()) { pyxfer::bind_everything(module); }
