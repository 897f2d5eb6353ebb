#include "cuda/device.hpp"

#include "bind/bind.hpp"
#include "cuda/cleanup.hpp"
#include "cuda/driver.hpp"

#include <pybind11/stl.h>

namespace py = pybind11;

namespace pyxfer {
namespace {

void bind_properties(py::module_& module) {
  py::class_<device_properties>(module, "DeviceProperties", py::module_local(), py::is_final())
      .def_readonly("name", &device_properties::name)
      .def_readonly("uuid", &device_properties::uuid)
      .def_property_readonly("pci",
                             [](device_properties const& self) -> std::optional<std::string> {
                               if (self.pci.empty()) { return std::nullopt; }
                               return self.pci;
                             })
      .def_readonly("memory_bytes", &device_properties::memory_bytes)
      .def_readonly("compute_major", &device_properties::compute_major)
      .def_readonly("compute_minor", &device_properties::compute_minor)
      .def_readonly("copy_engines", &device_properties::copy_engines)
      .def_readonly("integrated", &device_properties::integrated);
}

}  // namespace

void bind_device(py::module_& module) {
  bind_properties(module);
  module.def("device_count", &device_count, release_gil());
  module.def("driver_version", &driver_version, release_gil());
  module.def("device_properties", &properties_of, py::arg("device"), release_gil());
  module.def("memory_info", &memory_info, py::arg("device"), release_gil());
  module.def("synchronize", &synchronize_device, py::arg("device"), release_gil());
  module.def("relax_captures_in_this_thread", &relax_captures_in_this_thread, release_gil());
  module.def("park_threads_at_exit", &park_threads_at_exit, py::arg("seconds"));
  module.def("driver_has", &driver_has, py::arg("symbol"), py::arg("api_version"), release_gil());
  module.def("take_cleanup_failures", &take_cleanup_failures);
}

}  // namespace pyxfer
