#include "bind/bind.hpp"
#include "trace/tracer.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <memory>

namespace py = pybind11;

namespace pyxfer {
namespace {

using trace::taken;
using trace::tracer;

/// Made when it is needed, so that importing this module does not import NumPy.
py::dtype record_type() {
  py::list fields;
  auto const add = [&](char const* name, char const* format) {
    fields.append(py::make_tuple(name, format));
  };
  add("start_ns", "i8");
  add("end_ns", "i8");
  add("nbytes", "u8");
  for (auto const* const name :
       {"correlation", "stream", "context", "device", "thread", "name", "copies"}) {
    add(name, "u4");
  }
  add("result", "i4");
  for (auto const* const name : {"kind", "way", "source", "target"}) { add(name, "u1"); }
  add("flags", "u4");
  return py::dtype::from_args(fields);
}

/// The table itself, not a copy: the array keeps `self` alive.
py::array records_of(py::object const& self) {
  auto const& records = self.cast<taken const&>().records;
  return {record_type(), records.size(), records.data(), self};
}

/// A property whose getter may wait for a call of another thread.
template <typename Getter>
py::cpp_function without_gil(Getter const& getter) {
  return {getter, release_gil()};
}

void bind_taken(py::module_& module) {
  py::class_<taken>(module, "Taken", py::module_local(), py::is_final())
      .def_property_readonly("records", &records_of)
      .def_readonly("names", &taken::names)
      .def_readonly("dropped", &taken::dropped)
      .def_readonly("clock_error_ns", &taken::clock_error_ns)
      .def_readonly("clock_drift_ns", &taken::clock_drift_ns);
}

}  // namespace

void bind_trace(py::module_& module) {
  module.attr("trace_kinds") = py::tuple(py::cast(trace::kind_words));
  bind_taken(module);
  owner_class<tracer>(module, "Tracer", py::module_local(), py::is_final())
      .def(py::init([](std::vector<std::string> const& libraries,
                       std::vector<std::string> const& kinds, std::size_t capacity_bytes) {
             gil_released const released;  // as for HostBuffer
             return make_owned<tracer>(trace_candidates(libraries), kinds, capacity_bytes);
           }),
           py::arg("libraries"), py::arg("kinds"), py::arg("capacity_bytes"))
      .def_property_readonly("library", without_gil(&tracer::library_name))
      .def_property_readonly("version", without_gil(&tracer::version))
      .def_property_readonly("refused", without_gil(&tracer::refused))
      .def("start", &tracer::start, release_gil())
      .def("stop", &tracer::stop, release_gil())
      .def("take", &tracer::take, release_gil())
      .def("close", &tracer::close, release_gil());
}

}  // namespace pyxfer
