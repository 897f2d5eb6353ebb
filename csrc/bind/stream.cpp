#include "cuda/stream.hpp"

#include "bind/bind.hpp"
#include "cuda/device.hpp"
#include "cuda/event.hpp"
#include "cuda/wait.hpp"

namespace py = pybind11;

namespace pyxfer {
namespace {

stream_view view_of(std::uintptr_t handle) {
  return stream_view{reinterpret_cast<CUstream>(handle)};  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

void bind_stream(py::module_& module) {
  py::class_<stream>(module, "Stream", py::module_local(), py::is_final())
      .def(py::init<int>(), py::arg("device") = 0, release_gil())
      .def_property_readonly(
          "handle",
          [](stream const& self) { return reinterpret_cast<std::uintptr_t>(self.handle()); })
      .def("close", &stream::close, release_gil())
      .def("abandon", &stream::abandon);
  py::class_<event>(module, "Event", py::module_local(), py::is_final())
      .def(py::init<int>(), py::arg("device") = 0, release_gil())
      .def(
          "record",
          [](event& self, std::uintptr_t handle) {
            device_guard const guard{self.device()};
            self.record(view_of(handle));
          },
          py::arg("stream"), release_gil())
      .def(
          "wait", [](event const& self, double seconds) { return wait_for(self, seconds); },
          py::arg("seconds"), release_gil())
      .def("seconds_since", &event::seconds_since, py::arg("start"))
      .def("close", &event::close, release_gil())
      .def("abandon", &event::abandon);
}

}  // namespace pyxfer
