#include "cuda/stream.hpp"

#include "bind/bind.hpp"
#include "cuda/bracket.hpp"

#include <pybind11/stl.h>

namespace py = pybind11;

namespace pyxfer {
void bind_stream(py::module_& module) {
  owner_class<stream>(module, "Stream", py::module_local(), py::is_final())
      .def(py::init<int>(), py::arg("device") = 0, release_gil())
      .def_property_readonly(
          "handle",
          [](stream const& self) { return reinterpret_cast<std::uintptr_t>(self.handle()); })
      .def("close", &stream::close, release_gil())
      .def("abandon", &stream::abandon);
  module.def("drained_fault", &drained_fault, py::arg("elapsed_s"), py::arg("wall_s"));
  owner_class<bracket>(module, "Bracket", py::module_local(), py::is_final())
      .def(py::init([](int device, std::optional<std::uintptr_t> handle) {
             gil_released const released;  // as for HostBuffer
             if (!handle) { return make_owned<bracket>(device); }
             return make_owned<bracket>(device, view_of(*handle));
           }),
           py::arg("device"), py::arg("stream") = py::none())
      .def("begin", &bracket::begin, release_gil())
      .def("end", &bracket::end, release_gil())
      .def("ended_within", &bracket::ended_within, py::arg("seconds"), release_gil())
      .def_property_readonly("elapsed_s", &bracket::elapsed_s)
      .def("close", &bracket::close, release_gil());
}

}  // namespace pyxfer
