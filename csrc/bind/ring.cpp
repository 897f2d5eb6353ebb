#include "ring/ring.hpp"

#include "bind/bind.hpp"
#include "bind/interruptible.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace pyxfer {
namespace {

using numbers = std::vector<std::ptrdiff_t>;

void bind_staged(py::module_& module) {
  py::class_<staged>(module, "Staged", py::module_local(), py::is_final())
      .def_readonly("wall_s", &staged::wall_s)
      .def_readonly("chunks", &staged::chunks)
      .def_readonly("copies", &staged::copies)
      .def_readonly("threads", &staged::threads)
      .def_readonly("waited_s", &staged::waited_s)
      .def_readonly("filled_s", &staged::filled_s);
}

void bind_ticket(py::module_& module) {
  py::class_<ticket>(module, "Ticket", py::module_local(), py::is_final())
      .def("done", &ticket::done, release_gil())
      .def("result", &ticket::result, py::arg("seconds"), release_gil());
}

layout layout_of(py::array const& array) {
  auto const address = reinterpret_cast<std::uintptr_t>(array.data());
  if ((array.flags() & py::array::c_style) != 0) { return {address, 1, {array.nbytes()}, {1}}; }
  return {address, array.itemsize(), numbers(array.shape(), array.shape() + array.ndim()),
          numbers(array.strides(), array.strides() + array.ndim())};
}

/// Neighbours in a block with the shape and the dtype of the first, which are equally far apart.
struct even_run {
  py::array first;
  std::size_t offset;
  std::size_t step;
  std::size_t count;

  [[nodiscard]] bool continues_with(py::array const& next, std::size_t at) const {
    auto const last = offset + (count - 1) * step;
    auto const dtype = next.dtype();
    return (dtype.is(first.dtype()) || dtype.equal(first.dtype())) && next.ndim() == first.ndim() &&
           std::equal(next.shape(), next.shape() + next.ndim(), first.shape()) &&
           (count == 1 || at - last == step);
  }
};

/// Contiguous arrays that cross in one copy. Their memory must exist until it has ended.
struct pack {
  layout all;
  std::vector<even_run> runs;
};

/// Frameworks and kernels need at most this alignment, which is that of `cudaMalloc`.
constexpr std::size_t pack_alignment = 256;

pack pack_of(std::vector<py::array> const& arrays) {
  std::vector<layout::part> parts;
  std::vector<even_run> runs;
  parts.reserve(arrays.size());
  std::size_t next = 0;
  for (auto const& each : arrays) {
    if ((each.flags() & py::array::c_style) == 0) {
      throw std::invalid_argument("the arrays of a block are contiguous");
    }
    auto const bytes = static_cast<std::size_t>(each.nbytes());
    if (!runs.empty() && runs.back().continues_with(each, next)) {
      auto& longer = runs.back();
      longer.step = next - parts.back().offset;
      ++longer.count;
    } else {
      runs.push_back({each, next, 0, 1});
    }
    parts.push_back({reinterpret_cast<std::uintptr_t>(each.data()), bytes, next});
    next += (bytes + pack_alignment - 1) / pack_alignment * pack_alignment;
  }
  return {layout{std::move(parts)}, std::move(runs)};
}

py::list runs_of(pack const& from) {
  py::list made;
  for (auto const& each : from.runs) {
    made.append(py::make_tuple(each.first.attr("shape"), each.first.dtype(), each.offset, each.step,
                               each.count));
  }
  return made;
}

/// Whether it is exactly an array of NumPy's, contiguous, and its memory is that of such an array:
/// nothing that belongs to another object, such as a mapped file.
bool is_plain(py::handle object, py::handle array_type) {
  auto const* proxy = py::detail::array_proxy(object.ptr());
  if (!py::type::handle_of(object).is(array_type) || (proxy->flags & py::array::c_style) == 0) {
    return false;
  }
  py::handle const base{proxy->base};
  return !base || (py::type::handle_of(base).is(array_type) &&
                   py::detail::array_proxy(base.ptr())->base == nullptr);
}

/// For each object the bytes of a plain array, or -1; and the dtypes of the plain ones.
py::tuple plain_arrays(py::list const& objects) {
  py::handle const array_type{
      reinterpret_cast<PyObject*>(py::detail::npy_api::get().PyArray_Type_)};
  py::list bytes{objects.size()};
  py::list dtypes;
  std::vector<PyObject*> known;
  for (std::size_t place = 0; place < objects.size(); ++place) {
    py::handle const object = PyList_GET_ITEM(objects.ptr(), static_cast<py::ssize_t>(place));
    auto const plain = is_plain(object, array_type);
    auto const array = plain ? py::reinterpret_borrow<py::array>(object) : py::array{};
    bytes[place] = plain ? array.nbytes() : -1;
    if (plain && std::find(known.begin(), known.end(), array.dtype().ptr()) == known.end()) {
      known.push_back(array.dtype().ptr());
      dtypes.append(array.dtype());
    }
  }
  return py::make_tuple(bytes, dtypes);
}

void bind_pack(py::module_& module) {
  py::class_<pack>(module, "Pack", py::module_local(), py::is_final())
      .def(py::init(&pack_of), py::arg("arrays"))
      .def_property_readonly("runs", &runs_of)
      .def_property_readonly("nbytes", [](pack const& self) { return self.all.bytes(); });
  module.def("plain_arrays", &plain_arrays, py::arg("objects"));
}

using file_row = std::tuple<int, int, std::size_t, std::string>;
using number_row = std::tuple<std::size_t, std::size_t, std::size_t>;

std::shared_ptr<file_set> files_of(std::vector<file_row> const& rows) {
  std::vector<file_set::file> files;
  files.reserve(rows.size());
  for (auto const& [buffered, direct, bytes, name] : rows) {
    files.push_back({buffered, direct, bytes, name});
  }
  return std::make_shared<file_set>(std::move(files));
}

std::shared_ptr<file_window> window_of(std::shared_ptr<file_set> const& files,
                                       std::vector<number_row> const& ranges,
                                       std::vector<number_row> const& parts) {
  std::vector<file_window::range> from;
  from.reserve(ranges.size());
  for (auto const& [file, offset, bytes] : ranges) { from.push_back({file, offset, bytes}); }
  std::vector<file_window::part> to;
  to.reserve(parts.size());
  for (auto const& [begin, bytes, device] : parts) { to.push_back({begin, bytes, device}); }
  return std::make_shared<file_window>(files, std::move(from), std::move(to));
}

void bind_files(py::module_& module) {
  py::class_<file_set, std::shared_ptr<file_set>>(module, "FileSet", py::module_local(),
                                                  py::is_final())
      .def(py::init(&files_of), py::arg("files"))
      .def(
          "read",
          [](file_set const& self, std::size_t file, std::size_t offset, std::size_t bytes,
             std::uintptr_t address) {
            self.read(file, offset, bytes, reinterpret_cast<void*>(address));
          },
          py::arg("file"), py::arg("offset"), py::arg("nbytes"), py::arg("address"), release_gil());
  py::class_<file_window, std::shared_ptr<file_window>>(module, "FileWindow", py::module_local(),
                                                        py::is_final())
      .def(py::init(&window_of), py::arg("files"), py::arg("ranges"), py::arg("parts"))
      .def_property_readonly("nbytes", &file_window::bytes);
}

bool at_once(ring& through, layout const& from, std::uintptr_t to,
             std::optional<std::uintptr_t> on) {
  gil_released const released;
  return through.upload_at_once(from, to, stream_of(on));
}

void bind_transfers(owner_class<ring>& kind) {
  kind.def(
      "upload",
      [](ring& self, std::uintptr_t address, std::ptrdiff_t itemsize, numbers const& shape,
         numbers const& strides, std::uintptr_t device_address, std::optional<std::uintptr_t> after,
         bool wait) {
        return run_interruptibly([&](interruption const& interrupted) {
          return self.upload({address, itemsize, shape, strides}, device_address, stream_of(after),
                             wait, interrupted);
        });
      },
      py::arg("address"), py::arg("itemsize"), py::arg("shape"), py::arg("strides"),
      py::arg("device_address"), py::arg("stream"), py::arg("wait"), release_gil());
  kind.def(
      "download",
      [](ring& self, std::uintptr_t address, std::ptrdiff_t itemsize, numbers const& shape,
         numbers const& strides, std::uintptr_t device_address,
         std::optional<std::uintptr_t> after) {
        return run_interruptibly([&](interruption const& interrupted) {
          return self.download(device_address, {address, itemsize, shape, strides},
                               stream_of(after), interrupted);
        });
      },
      py::arg("address"), py::arg("itemsize"), py::arg("shape"), py::arg("strides"),
      py::arg("device_address"), py::arg("stream"), release_gil());
  kind.def(
      "upload_at_once",
      [](ring& self, std::uintptr_t address, std::ptrdiff_t bytes, std::uintptr_t device_address,
         std::optional<std::uintptr_t> on) {
        return at_once(self, {address, 1, {bytes}, {1}}, device_address, on);
      },
      py::arg("address"), py::arg("nbytes"), py::arg("device_address"), py::arg("stream"));
  // NumPy's attributes take 1 us to read in Python.
  kind.def(
      "upload_at_once",
      [](ring& self, py::array const& array, std::uintptr_t device_address,
         std::optional<std::uintptr_t> on) {
        return at_once(self, layout_of(array), device_address, on);
      },
      py::arg("array").noconvert(), py::arg("device_address"), py::arg("stream"));
  kind.def(
      "upload_at_once",
      [](ring& self, pack const& from, std::uintptr_t device_address,
         std::optional<std::uintptr_t> on) { return at_once(self, from.all, device_address, on); },
      py::arg("pack"), py::arg("device_address"), py::arg("stream"));
  kind.def(
      "await_at_once",
      [](ring& self) {
        run_interruptibly([&](interruption const& interrupted) {
          self.await_at_once(interrupted);
          return true;
        });
      },
      release_gil());
  kind.def(
      "await_uploads",
      [](ring& self) {
        run_interruptibly([&](interruption const& interrupted) {
          self.await_uploads(interrupted);
          return true;
        });
      },
      release_gil());
  kind.def(
      "upload",
      [](ring& self, py::array const& array, std::uintptr_t device_address,
         std::optional<std::uintptr_t> after, bool wait) {
        auto const from = layout_of(array);
        gil_released const released;
        return run_interruptibly([&](interruption const& interrupted) {
          return self.upload(from, device_address, stream_of(after), wait, interrupted);
        });
      },
      py::arg("array").noconvert(), py::arg("device_address"), py::arg("stream"), py::arg("wait"));
  kind.def(
      "upload",
      [](ring& self, pack const& from, std::uintptr_t device_address,
         std::optional<std::uintptr_t> after, bool wait) {
        return run_interruptibly([&](interruption const& interrupted) {
          return self.upload(from.all, device_address, stream_of(after), wait, interrupted);
        });
      },
      py::arg("pack"), py::arg("device_address"), py::arg("stream"), py::arg("wait"),
      release_gil());
  kind.def(
      "download_at_once",
      [](ring& self, py::array& array, std::uintptr_t device_address, std::uintptr_t after) {
        layout const to{
            reinterpret_cast<std::uintptr_t>(array.mutable_data()), 1, {array.nbytes()}, {1}};
        gil_released const released;
        return run_interruptibly([&](interruption const& interrupted) {
          return self.download_at_once(device_address, to, view_of(after), interrupted);
        });
      },
      py::arg("array").noconvert(), py::arg("device_address"), py::arg("stream"));
  kind.def(
      "download_at_once",
      [](ring& self, std::uintptr_t address, std::ptrdiff_t itemsize, numbers const& shape,
         numbers const& strides, std::uintptr_t device_address, std::uintptr_t after) {
        return run_interruptibly([&](interruption const& interrupted) {
          return self.download_at_once(device_address, {address, itemsize, shape, strides},
                                       view_of(after), interrupted);
        });
      },
      py::arg("address"), py::arg("itemsize"), py::arg("shape"), py::arg("strides"),
      py::arg("device_address"), py::arg("stream"), release_gil());
  kind.def(
      "start_upload",
      [](ring& self, pack const& from, std::uintptr_t device_address,
         std::optional<std::uintptr_t> after) {
        return self.start_upload(from.all, device_address, stream_of(after));
      },
      py::arg("pack"), py::arg("device_address"), py::arg("stream"), release_gil());
  kind.def(
      "start_upload",
      [](ring& self, std::uintptr_t address, std::ptrdiff_t itemsize, numbers const& shape,
         numbers const& strides, std::uintptr_t device_address,
         std::optional<std::uintptr_t> after) {
        return self.start_upload({address, itemsize, shape, strides}, device_address,
                                 stream_of(after));
      },
      py::arg("address"), py::arg("itemsize"), py::arg("shape"), py::arg("strides"),
      py::arg("device_address"), py::arg("stream"), release_gil());
}

conversion conversion_of(std::string const& from, std::string const& to, bool casts_on_host,
                         std::vector<std::uint64_t> const& extents,
                         std::vector<std::uint64_t> const& strides) {
  conversion made{item_kind_of(from), item_kind_of(to), casts_on_host, {}, 0};
  if (!can_cast(made.from, made.to)) {
    throw std::invalid_argument(from + " is not converted to " + to);
  }
  if (extents.size() != strides.size() || extents.size() > item_order::most_axes) {
    throw std::invalid_argument("an order has an extent and a stride for each of up to six axes");
  }
  made.order.axes = extents.size();
  std::copy(extents.begin(), extents.end(), made.order.extents.begin());
  std::copy(strides.begin(), strides.end(), made.order.strides.begin());
  return made;
}

conversion with_result(conversion by, std::uintptr_t result) {
  by.result = result;
  return by;
}

/// Throws std::invalid_argument if the items have another size than those that are converted.
void require_items_of(conversion const& by, std::ptrdiff_t itemsize) {
  if (itemsize != static_cast<std::ptrdiff_t>(bytes_of(by.from))) {
    throw std::invalid_argument(std::string{"items of "} + word_of(by.from) + " have " +
                                std::to_string(bytes_of(by.from)) + " bytes, and not " +
                                std::to_string(itemsize));
  }
}

layout items_of(conversion const& by, std::uintptr_t address, std::ptrdiff_t itemsize,
                numbers const& shape, numbers const& strides) {
  require_items_of(by, itemsize);
  return {address, itemsize, shape, strides};
}

void bind_conversion(py::module_& module) {
  py::class_<conversion>(module, "Conversion", py::module_local(), py::is_final())
      .def(py::init(&conversion_of), py::arg("source"), py::arg("to"), py::arg("casts_on_host"),
           py::arg("extents"), py::arg("strides"))
      .def_property_readonly("casts_on_host",
                             [](conversion const& self) { return self.casts_on_host; })
      .def_property_readonly("has_kernel", &conversion::has_kernel)
      .def("crossing_bytes", &conversion::crossing_bytes, py::arg("nbytes"))
      .def(
          "cast",
          [](conversion const& self, std::uintptr_t address, std::ptrdiff_t itemsize,
             numbers const& shape, numbers const& strides, std::uintptr_t to) {
            auto const from = items_of(self, address, itemsize, shape, strides);
            read_converted(from, self, 0, self.crossing_bytes(from.bytes()),
                           reinterpret_cast<void*>(to));
          },
          py::arg("address"), py::arg("itemsize"), py::arg("shape"), py::arg("strides"),
          py::arg("to_address"), release_gil());
}

layout items_of(conversion const& by, py::array const& array) {
  require_items_of(by, array.itemsize());
  return layout_of(array);
}

/// `crossed` is memory for what crosses, and the result's own if no kernel reads it.
void bind_converting(owner_class<ring>& kind) {
  kind.def("prepare", &ring::prepare, py::arg("conversion"), release_gil());
  kind.def(
      "upload",
      [](ring& self, std::uintptr_t address, std::ptrdiff_t itemsize, numbers const& shape,
         numbers const& strides, conversion const& by, std::uintptr_t crossed,
         std::uintptr_t result, std::optional<std::uintptr_t> after, bool wait) {
        auto const from = items_of(by, address, itemsize, shape, strides);
        auto const converting = with_result(by, result);
        return run_interruptibly([&](interruption const& interrupted) {
          return self.upload(from, crossed, stream_of(after), wait, interrupted, &converting);
        });
      },
      py::arg("address"), py::arg("itemsize"), py::arg("shape"), py::arg("strides"),
      py::arg("conversion"), py::arg("crossed_address"), py::arg("device_address"),
      py::arg("stream"), py::arg("wait"), release_gil());
  kind.def(
      "upload_at_once",
      [](ring& self, std::uintptr_t address, std::ptrdiff_t itemsize, numbers const& shape,
         numbers const& strides, conversion const& by, std::uintptr_t crossed,
         std::uintptr_t result, std::optional<std::uintptr_t> on) {
        auto const converting = with_result(by, result);
        return self.upload_at_once(items_of(by, address, itemsize, shape, strides), crossed,
                                   stream_of(on), &converting);
      },
      py::arg("address"), py::arg("itemsize"), py::arg("shape"), py::arg("strides"),
      py::arg("conversion"), py::arg("crossed_address"), py::arg("device_address"),
      py::arg("stream"), release_gil());
  kind.def(
      "upload",
      [](ring& self, py::array const& array, conversion const& by, std::uintptr_t crossed,
         std::uintptr_t result, std::optional<std::uintptr_t> after, bool wait) {
        auto const from = items_of(by, array);
        auto const converting = with_result(by, result);
        gil_released const released;
        return run_interruptibly([&](interruption const& interrupted) {
          return self.upload(from, crossed, stream_of(after), wait, interrupted, &converting);
        });
      },
      py::arg("array").noconvert(), py::arg("conversion"), py::arg("crossed_address"),
      py::arg("device_address"), py::arg("stream"), py::arg("wait"));
  kind.def(
      "upload_at_once",
      [](ring& self, py::array const& array, conversion const& by, std::uintptr_t crossed,
         std::uintptr_t result, std::optional<std::uintptr_t> on) {
        auto const from = items_of(by, array);
        auto const converting = with_result(by, result);
        gil_released const released;
        return self.upload_at_once(from, crossed, stream_of(on), &converting);
      },
      py::arg("array").noconvert(), py::arg("conversion"), py::arg("crossed_address"),
      py::arg("device_address"), py::arg("stream"));
  kind.def(
      "start_upload",
      [](ring& self, std::uintptr_t address, std::ptrdiff_t itemsize, numbers const& shape,
         numbers const& strides, conversion const& by, std::uintptr_t crossed,
         std::uintptr_t result, std::optional<std::uintptr_t> after) {
        return self.start_upload(items_of(by, address, itemsize, shape, strides), crossed,
                                 stream_of(after), with_result(by, result));
      },
      py::arg("address"), py::arg("itemsize"), py::arg("shape"), py::arg("strides"),
      py::arg("conversion"), py::arg("crossed_address"), py::arg("device_address"),
      py::arg("stream"), release_gil());
}

void bind_reads(owner_class<ring>& kind) {
  kind.def(
      "start_read",
      [](ring& self, std::shared_ptr<file_window> const& from,
         std::optional<std::uintptr_t> after) { return self.start_read(from, stream_of(after)); },
      py::arg("window"), py::arg("stream"), release_gil());
}

void bind_properties(owner_class<ring>& kind) {
  kind.def_property_readonly("device", &ring::device)
      .def_property_readonly("threads", [](ring const& self) { return self.settings().threads; })
      .def_property_readonly("chunk_bytes",
                             [](ring const& self) { return self.settings().chunk_bytes; })
      .def_property_readonly("slots", [](ring const& self) { return self.settings().slots; })
      .def_property_readonly("fill", [](ring const& self) { return word_of(self.settings().fill); })
      .def_property_readonly(
          "fill_kernel", [](ring const& self) { return fill_kernel_of(self.settings().fill).name; })
      .def_property_readonly("spin_us", [](ring const& self) { return self.settings().spin_us; })
      .def_property_readonly("direct_bytes",
                             [](ring const& self) { return self.settings().direct_bytes; })
      .def_property_readonly("pinned_bytes",
                             [](ring const& self) { return self.settings().pinned_bytes(); });
}

}  // namespace

void bind_ring(py::module_& module) {
  bind_staged(module);
  bind_ticket(module);
  bind_pack(module);
  bind_files(module);
  bind_conversion(module);
  owner_class<ring> kind(module, "Ring", py::module_local(), py::is_final());
  kind.def(py::init([](int device, int threads, std::ptrdiff_t chunk_bytes, int slots,
                       std::string const& fill, int spin_us, std::ptrdiff_t direct_bytes) {
             gil_released const released;  // as for HostBuffer
             return make_owned<ring>(
                 device, ring_settings{threads, static_cast<std::size_t>(chunk_bytes), slots,
                                       fill_kind_of(fill), spin_us,
                                       static_cast<std::size_t>(direct_bytes)});
           }),
           py::arg("device"), py::arg("threads"), py::arg("chunk_bytes"), py::arg("slots"),
           py::arg("fill"), py::arg("spin_us"), py::arg("direct_bytes") = 0);
  bind_transfers(kind);
  bind_converting(kind);
  bind_reads(kind);
  bind_properties(kind);
  kind.def(
          "threads_for",
          [](ring const& self, std::size_t nbytes) { return self.plan_for(nbytes).threads(); },
          py::arg("nbytes"))
      .def("alert", &ring::alert)
      .def("cancel", &ring::cancel, release_gil())
      .def("close", &ring::close, py::arg("patience_s") = 30.0, release_gil())
      .def("abandon", &ring::abandon, release_gil());
}

}  // namespace pyxfer
