#include "bind/module_body.hpp"

namespace pyxfer {

char const* runtime_word() { return "cuda"; }

void bind_runtime_own(pybind11::module_& /*module*/) {}

std::vector<trace::candidate> trace_candidates(std::vector<std::string> const& libraries) {
  std::vector<trace::candidate> candidates;
  candidates.reserve(libraries.size());
  for (auto const& name : libraries) { candidates.push_back(trace::shared_library(name)); }
  return candidates;
}

}  // namespace pyxfer

PYBIND11_MODULE(_cuda, module) { pyxfer::bind_everything(module); }
