#include "bind/module_body.hpp"
#include "hostrt/activity.hpp"
#include "hostrt/control.hpp"

#include <pybind11/stl.h>

namespace py = pybind11;

namespace pyxfer {

char const* runtime_word() { return "host"; }

std::vector<trace::candidate> trace_candidates(std::vector<std::string> const& /*libraries*/) {
  auto const open = [] { return trace::symbol_finder{hostrt::activity_function}; };
  return {{"the host runtime", open}};
}

namespace {

void bind_activity(py::module_& testing) {
  testing.def("kernel", &hostrt::kernel, py::arg("name"), py::arg("seconds"), py::arg("stream"));
  testing.def("mark", &hostrt::mark, py::arg("name"), py::arg("begin"));
  testing.def("skew_clock", &hostrt::skew_clock, py::arg("ns_offset"), py::arg("ns_per_s"));
  testing.def("refuse_activity", &hostrt::refuse_activity, py::arg("code"));
  testing.def("refuse_kind", &hostrt::refuse_kind, py::arg("kind"), py::arg("code"));
  testing.def("other_subscriber", &hostrt::other_subscriber, py::arg("subscribed"));
  testing.def("lose_records", &hostrt::lose_records, py::arg("count"));
  testing.def("hand_over_at_once", &hostrt::hand_over_at_once, py::arg("on"));
}

void bind_links_model(py::module_& testing) {
  testing.def(
      "model_link_of",
      [](int device, double h2d_bytes_per_s, double h2d_latency_s, double d2h_bytes_per_s,
         double d2h_latency_s) {
        hostrt::model_link_of(device, {h2d_bytes_per_s, h2d_latency_s},
                              {d2h_bytes_per_s, d2h_latency_s});
      },
      py::arg("device"), py::arg("h2d_bytes_per_s"), py::arg("h2d_latency_s"),
      py::arg("d2h_bytes_per_s"), py::arg("d2h_latency_s"));
  testing.def(
      "model_pair",
      [](int source, int destination, double bytes_per_s, double latency_s) {
        hostrt::model_pair(source, destination, {bytes_per_s, latency_s});
      },
      py::arg("source"), py::arg("destination"), py::arg("bytes_per_s"),
      py::arg("latency_s") = 0.0);
  testing.def(
      "model_issue",
      [](double call_s, double descriptor_s) { hostrt::model_issue({call_s, descriptor_s}); },
      py::arg("call_s"), py::arg("descriptor_s") = 0.0);
  testing.def("model_call", &hostrt::model_call, py::arg("call"), py::arg("seconds"));
  testing.def("refuse_peer", &hostrt::refuse_peer, py::arg("device"), py::arg("peer"),
              py::arg("refused"));
  testing.def("set_attribute_of", &hostrt::set_attribute_of, py::arg("device"),
              py::arg("attribute"), py::arg("value"));
}

}  // namespace

void bind_runtime_own(py::module_& module) {
  auto testing = module.def_submodule(
      "testing",
      "For tests only: makes the host runtime slow, fail or stall, and shows its state.");
  testing.def(
      "model_link",
      [](double h2d_bytes_per_s, double h2d_latency_s, double d2h_bytes_per_s,
         double d2h_latency_s) {
        hostrt::model_link({h2d_bytes_per_s, h2d_latency_s}, {d2h_bytes_per_s, d2h_latency_s});
      },
      py::arg("h2d_bytes_per_s"), py::arg("h2d_latency_s"), py::arg("d2h_bytes_per_s"),
      py::arg("d2h_latency_s"));
  testing.def("fail", &hostrt::fail, py::arg("call"), py::arg("nth"), py::arg("code"));
  testing.def("fail_sticky", &hostrt::fail_sticky, py::arg("call"), py::arg("nth"),
              py::arg("code"));
  testing.def("stall", &hostrt::stall, py::arg("call"), py::arg("nth"), py::arg("seconds"));
  testing.def("release_stalls", &hostrt::release_stalls, release_gil());
  testing.def("lose_device", &hostrt::lose_device, py::arg("code"));
  testing.def("lose_one_device", &hostrt::lose_one_device, py::arg("device"), py::arg("code"));
  testing.def("hang_device", &hostrt::hang_device, py::arg("device"));
  testing.def("destroy_context", &hostrt::destroy_context, py::arg("device"));
  testing.def("set_device_count", &hostrt::set_device_count, py::arg("count"));
  testing.def("set_connections", &hostrt::set_connections, py::arg("count"));
  testing.def("protect_device_memory", &hostrt::protect_device_memory, py::arg("on"));
  testing.def("set_missing", &hostrt::set_missing, py::arg("symbol"), py::arg("missing"));
  testing.def("set_no_driver", &hostrt::set_no_driver, py::arg("code"));
  testing.def("set_attribute", &hostrt::set_attribute, py::arg("attribute"), py::arg("value"));
  testing.def("begin_capture", &hostrt::begin_capture, py::arg("stream"), py::arg("mode"));
  testing.def("end_capture", &hostrt::end_capture, py::arg("stream"));
  testing.def("allocated", [] {
    py::list found;
    for (auto const& live : hostrt::allocated()) {
      found.append(py::make_tuple(live.kind, live.address, live.bytes));
    }
    return found;
  });
  testing.def("calls", &hostrt::calls);
  bind_activity(testing);
  bind_links_model(testing);
  testing.def("reset", &hostrt::reset, release_gil());
}

}  // namespace pyxfer

PYBIND11_MODULE(_host, module) { pyxfer::bind_everything(module); }
