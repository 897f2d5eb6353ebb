#include "bind/bind.hpp"
#include "bind/interruptible.hpp"
#include "copy/content.hpp"
#include "cuda/device.hpp"
#include "links/cycle.hpp"
#include "links/flow.hpp"
#include "links/kernels.hpp"
#include "links/run.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace py = pybind11;

namespace pyxfer {
namespace {

void bind_peers(py::module_& module) {
  module.def("can_access_peer", &can_access_peer, py::arg("device"), py::arg("peer"),
             release_gil());
  module.def("enable_peer", &enable_peer, py::arg("device"), py::arg("peer"), release_gil());
  module.def("disable_peer", &disable_peer, py::arg("device"), py::arg("peer"), release_gil());
  module.def(
      "device_attribute",
      [](int device, int attribute) {
        return device_attribute(device, static_cast<cudaDeviceAttr>(attribute));
      },
      py::arg("device"), py::arg("attribute"), release_gil());
}

void bind_contents(py::module_& module) {
  module.def("fill_device", &fill_device, py::arg("device"), py::arg("address"), py::arg("nbytes"),
             py::arg("seed"), release_gil());
  module.def("first_wrong_at", &first_unlike_on_device, py::arg("device"), py::arg("address"),
             py::arg("nbytes"), py::arg("seed"), release_gil());
  module.def(
      "make_cycle",
      [](std::uintptr_t address, std::size_t nbytes, std::size_t stride, std::uint64_t seed,
         int device) { return make_cycle({address, nbytes, stride, seed, device}); },
      py::arg("address"), py::arg("nbytes"), py::arg("stride"), py::arg("seed"), py::arg("device"),
      release_gil());
}

void bind_kernels(py::module_& module) {
  owner_class<kernels>(module, "Kernels", py::module_local(), py::is_final())
      .def(py::init<int>(), py::arg("device"), release_gil())
      .def_property_readonly("load_s", &kernels::load_s)
      .def("close", &kernels::close, release_gil())
      .def("abandon", &kernels::abandon);
}

void bind_flow(py::module_& module) {
  owner_class<flow>(module, "Flow", py::module_local(), py::is_final())
      .def(py::init([](int device, std::string const& engine, std::uintptr_t destination,
                       std::uintptr_t source, std::size_t nbytes, kernels* with, std::size_t depth,
                       double pace_bytes_per_s, int source_device, int destination_device,
                       std::uint32_t hops, int multiprocessor, std::uint32_t rounds) {
             gil_released const released;  // as for HostBuffer
             return make_owned<flow>(flow_plan{device, flow_engine_of(engine), destination, source,
                                               nbytes, depth, pace_bytes_per_s, source_device,
                                               destination_device, hops, multiprocessor, rounds},
                                     with);
           }),
           py::kw_only(), py::arg("device"), py::arg("engine"), py::arg("destination"),
           py::arg("source"), py::arg("nbytes"), py::arg("kernels") = nullptr, py::arg("depth") = 4,
           py::arg("pace_bytes_per_s") = 0.0, py::arg("source_device") = -1,
           py::arg("destination_device") = -1, py::arg("hops") = 0, py::arg("multiprocessor") = -1,
           py::arg("rounds") = 0, py::keep_alive<1, 7>())
      .def("close", &flow::close, release_gil())
      .def("abandon", &flow::abandon);
}

/// The values themselves, not a copy: the array keeps `self` alive.
template <auto Member>
py::cpp_function array_of() {
  return {[](py::object const& self) {
    auto const& values = self.cast<flow_stamps const&>().*Member;
    return py::array(static_cast<py::ssize_t>(values.size()), values.data(), self);
  }};
}

void bind_stamps(py::module_& module) {
  py::class_<flow_stamps>(module, "FlowStamps", py::module_local(), py::is_final())
      .def_property_readonly("begin_ns", array_of<&flow_stamps::begin_ns>())
      .def_property_readonly("end_ns", array_of<&flow_stamps::end_ns>())
      .def_readonly("clock_error_ns", &flow_stamps::clock_error_ns)
      .def_readonly("late", &flow_stamps::late)
      .def_property_readonly(
          "gate", [](flow_stamps const& self) { return self.kernel_gate ? "kernel" : "host"; })
      .def_property_readonly("kernel_ns", array_of<&flow_stamps::kernel_ns>())
      .def_property_readonly("cycles", array_of<&flow_stamps::cycles>())
      .def_property_readonly("multiprocessor", array_of<&flow_stamps::multiprocessor>());
}

bool is_kernel_gate(std::string const& word) {
  if (word == "kernel") { return true; }
  if (word == "host") { return false; }
  throw std::invalid_argument("unknown gate \"" + word + "\"; known are kernel, host");
}

}  // namespace

void bind_links(py::module_& module) {
  bind_peers(module);
  bind_contents(module);
  bind_kernels(module);
  bind_flow(module);
  bind_stamps(module);
  module.def(
      "run_flows",
      [](std::vector<flow*> const& flows, double seconds, double deadline_s,
         std::string const& gate, double gate_timeout_s) {
        run_plan const plan{seconds, deadline_s, is_kernel_gate(gate), gate_timeout_s};
        return run_interruptibly(
            [&](interruption const& interrupted) { return run_flows(flows, plan, interrupted); });
      },
      py::arg("flows"), py::arg("seconds"), py::arg("deadline_s"), py::arg("gate") = "kernel",
      py::arg("gate_timeout_s") = 1.0, release_gil());
}

}  // namespace pyxfer
