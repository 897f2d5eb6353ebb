#include "cuda/memory.hpp"
#include "bind/bind.hpp"
#include "copy/content.hpp"
#include "numa/pages.hpp"

#include <pybind11/stl.h>

namespace py = pybind11;

namespace pyxfer {
namespace {

void bind_host_buffer(py::module_& module) {
  owner_class<host_buffer>(module, "HostBuffer", py::module_local(), py::is_final())
      .def(py::init([](std::size_t nbytes, std::string const& memory, int device) {
             // Not a call guard, because pybind11 then registers the object, which needs the GIL.
             gil_released const released;
             return make_owned<host_buffer>(nbytes, memory_kind_of(memory), device);
           }),
           py::arg("nbytes"), py::arg("memory"), py::arg("device") = 0)
      .def_property_readonly("address", &host_buffer::address)
      .def_property_readonly("nbytes", &host_buffer::size)
      .def_property_readonly("locking_s", &host_buffer::locking_s)
      .def("forget", &host_buffer::forget, py::arg("offset"), py::arg("nbytes"), release_gil())
      .def("close", &host_buffer::close, release_gil())
      .def("abandon", &host_buffer::abandon);
}

void bind_device_buffer(py::module_& module) {
  owner_class<device_buffer>(module, "DeviceBuffer", py::module_local(), py::is_final())
      .def(py::init<std::size_t, int>(), py::arg("nbytes"), py::arg("device") = 0, release_gil())
      .def_property_readonly("address", &device_buffer::address)
      .def_property_readonly("nbytes", &device_buffer::size)
      .def("close", &device_buffer::close, release_gil())
      .def("abandon", &device_buffer::abandon);
}

void bind_registration(py::module_& module) {
  owner_class<registration>(module, "Registration", py::module_local(), py::is_final())
      .def(py::init([](std::uintptr_t address, std::size_t nbytes, int device, bool writeable) {
             gil_released const released;  // as for HostBuffer
             return make_owned<registration>(address, nbytes, device, writeable);
           }),
           py::arg("address"), py::arg("nbytes"), py::arg("device") = 0,
           py::arg("writeable") = true)
      .def_property_readonly("address", &registration::address)
      .def_property_readonly("nbytes", &registration::size)
      .def("close", &registration::close, release_gil())
      .def("abandon", &registration::abandon);
}

}  // namespace

void bind_memory(py::module_& module) {
  bind_host_buffer(module);
  bind_device_buffer(module);
  bind_registration(module);
  module.def(
      "fill",
      [](std::uintptr_t address, std::size_t nbytes, std::uint64_t seed) {
        fill(address, nbytes, seed);
      },
      py::arg("address"), py::arg("nbytes"), py::arg("seed"), release_gil());
  module.def(
      "first_unlike",
      [](std::uintptr_t address, std::size_t nbytes, std::uint64_t seed) {
        return first_unlike(address, nbytes, seed);
      },
      py::arg("address"), py::arg("nbytes"), py::arg("seed"), release_gil());
  module.def("unmap_shared", &unmap_shared, py::arg("address"), py::arg("nbytes"), release_gil());
  module.def("page_nodes", &page_nodes, py::arg("address"), py::arg("nbytes"), release_gil());
  module.def("prefer_node", &prefer_node, py::arg("node"));
}

}  // namespace pyxfer
