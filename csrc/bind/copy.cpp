#include "bind/bind.hpp"
#include "copy/both.hpp"
#include "copy/content.hpp"
#include "copy/timed.hpp"
#include "ring/ring.hpp"

#include <pybind11/stl.h>

#include <atomic>
#include <memory>
#include <utility>

namespace py = pybind11;

namespace pyxfer {
namespace {

/// A bench, and the flag by which another thread can cancel its waits.
class copier {
 public:
  copier(int device, std::size_t streams, double patience_s)
      : bench_{device, streams, patience{patience_s, cancelled_}} {}

  [[nodiscard]] bench& used() noexcept { return bench_; }
  void cancel() noexcept { cancelled_->store(true); }

 private:
  std::shared_ptr<std::atomic<bool>> cancelled_{std::make_shared<std::atomic<bool>>(false)};
  bench bench_;
};

lane make_lane(std::string const& way, std::uintptr_t host, std::uintptr_t device,
               std::size_t bytes, std::size_t stride, std::size_t slots) {
  lane const made{direction_of(way), host, device, bytes, stride, slots};
  validate(made);
  return made;
}

void bind_values(py::module_& module) {
  py::class_<lane>(module, "Lane", py::module_local(), py::is_final())
      .def(py::init(&make_lane), py::arg("direction"), py::arg("host"), py::arg("device"),
           py::arg("nbytes"), py::arg("stride_bytes"), py::arg("slots"))
      .def_readonly("nbytes", &lane::bytes)
      .def_readonly("slots", &lane::slots);
  py::class_<sample>(module, "Sample", py::module_local(), py::is_final())
      .def_readonly("elapsed_s", &sample::elapsed_s)
      .def_readonly("dispatch_s", &sample::dispatch_s)
      .def_readonly("wall_s", &sample::wall_s)
      .def_readonly("copies", &sample::copies)
      .def_readonly("invalid", &sample::invalid);
}

void bind_timed(owner_class<copier>& kind) {
  kind.def(
      "gated",
      [](copier& self, std::string const& mode, lane const& along, std::size_t copies,
         std::size_t warmups, std::size_t first_slot, std::size_t untimed_bytes) {
        return time_gated(self.used(), issue_mode_of(mode), along,
                          {copies, warmups, first_slot, untimed_bytes});
      },
      py::arg("mode"), py::arg("lane"), py::arg("copies"), py::arg("warmups"),
      py::arg("first_slot"), py::arg("untimed_bytes") = 0, release_gil());
  kind.def(
      "on_stream",
      [](copier& self, std::string const& mode, lane const& along, std::size_t first_slot,
         std::size_t copies) {
        return time_on_stream(self.used(), issue_mode_of(mode), along, first_slot, copies);
      },
      py::arg("mode"), py::arg("lane"), py::arg("first_slot"), py::arg("copies") = 1,
      release_gil());
  kind.def(
      "drained",
      [](copier& self, lane const& along, std::size_t slot) {
        return time_drained(self.used(), along, slot);
      },
      py::arg("lane"), py::arg("slot"), release_gil());
  kind.def(
      "drained_through",
      [](copier& self, ring& through, lane const& along, std::size_t slot) {
        return time_drained(self.used(), through, along, slot);
      },
      py::arg("ring"), py::arg("lane"), py::arg("slot"), release_gil());
}

void bind_both(owner_class<copier>& kind) {
  kind.def(
      "both_gated",
      [](copier& self, lane const& h2d, lane const& d2h, std::size_t copies, std::size_t warmups,
         std::array<std::size_t, 2> tails, std::size_t first_slot, std::size_t untimed_bytes) {
        return time_both_gated(self.used(), {h2d, d2h},
                               {copies, warmups, tails, first_slot, untimed_bytes});
      },
      py::arg("h2d"), py::arg("d2h"), py::arg("copies"), py::arg("warmups"), py::arg("tails"),
      py::arg("first_slot"), py::arg("untimed_bytes") = 0, release_gil());
  kind.def(
      "both_issued",
      [](copier& self, lane const& h2d, lane const& d2h, std::size_t copies,
         std::size_t first_slot) {
        return time_both_issued(self.used(), {h2d, d2h}, copies, first_slot);
      },
      py::arg("h2d"), py::arg("d2h"), py::arg("copies"), py::arg("first_slot"), release_gil());
  kind.def(
      "both_threads",
      [](copier& self, lane const& h2d, lane const& d2h, std::size_t copies,
         std::size_t first_slot) {
        return time_both_threads(self.used(), {h2d, d2h}, copies, first_slot);
      },
      py::arg("h2d"), py::arg("d2h"), py::arg("copies"), py::arg("first_slot"), release_gil());
}

/// Address and bytes.
using scratch_place = std::pair<std::uintptr_t, std::size_t>;

content_check make_check(lane const& along, std::size_t slot, std::uint64_t seed,
                         scratch_place scratch, bool slow_reads) {
  return {along, slot, seed, {scratch.first, scratch.second}, slow_reads};
}

void bind_content(py::module_& module) {
  module.def(
      "prepare_check",
      [](int device, lane const& along, std::size_t slot, std::uint64_t seed,
         scratch_place scratch) { prepare(device, make_check(along, slot, seed, scratch, false)); },
      py::arg("device"), py::arg("lane"), py::arg("slot"), py::arg("seed"), py::arg("scratch"),
      release_gil());
  module.def(
      "first_wrong",
      [](int device, lane const& along, std::size_t slot, std::uint64_t seed, scratch_place scratch,
         bool slow_reads) {
        return first_wrong(device, make_check(along, slot, seed, scratch, slow_reads));
      },
      py::arg("device"), py::arg("lane"), py::arg("slot"), py::arg("seed"), py::arg("scratch"),
      py::arg("slow_reads"), release_gil());
}

}  // namespace

void bind_copy(py::module_& module) {
  bind_values(module);
  bind_content(module);
  owner_class<copier> kind(module, "Copier", py::module_local(), py::is_final());
  kind.def(py::init<int, std::size_t, double>(), py::arg("device"), py::arg("streams") = 1,
           py::arg("patience_s") = 30.0, release_gil());
  bind_timed(kind);
  bind_both(kind);
  kind.def("cancel", &copier::cancel);
  kind.def("close", [](copier& self) { self.used().close(); }, release_gil());
  kind.def("abandon", [](copier& self) { self.used().abandon(); });
}

}  // namespace pyxfer
