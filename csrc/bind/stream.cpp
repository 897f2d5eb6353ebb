#include "cuda/stream.hpp"

#include "bind/bind.hpp"
#include "cuda/bracket.hpp"

#include <pybind11/stl.h>

namespace py = pybind11;

namespace pyxfer {
void bind_stream(py::module_& module) {
  owner_class<stream>(module, "Stream")
      .def(py::init<int>(), py::arg("device") = 0, release_gil())
      .def_property_readonly(
          "handle",
          [](stream const& self) { return reinterpret_cast<std::uintptr_t>(self.handle()); })
      .def("close", &stream::close, release_gil())
      .def("abandon", &stream::abandon);
  module.def("drained_fault", &drained_fault, py::arg("elapsed_s"), py::arg("wall_s"));
  owner_class<bracket>(module, "Bracket")
      .def(py::init([](int device, std::optional<std::uintptr_t> handle) {
             py::gil_scoped_release const released;  // as for HostBuffer
             if (!handle) { return std::make_unique<bracket>(device); }
             return std::make_unique<bracket>(device, view_of(*handle));
           }),
           py::arg("device"), py::arg("stream") = py::none())
      .def("begin", &bracket::begin, release_gil())
      .def("end", &bracket::end, release_gil())
      .def("ended_within", &bracket::ended_within, py::arg("seconds"), release_gil())
      .def_property_readonly("elapsed_s", &bracket::elapsed_s)
      .def("close", &bracket::close, release_gil());
}

}  // namespace pyxfer
