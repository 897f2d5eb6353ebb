#include "bind/bind.hpp"
#include "bind/interruptible.hpp"
#include "blocks/mover.hpp"
#include "cuda/device.hpp"
#include "cuda/memory.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace py = pybind11;

namespace pyxfer {
namespace {

/// Address, number of blocks, stride.
using pool_row = std::tuple<std::uintptr_t, std::size_t, std::size_t>;
using indices = py::array_t<std::int64_t, py::array::c_style>;

block_pool pool_of(pool_row const& row) {
  auto const& [address, blocks, stride] = row;
  return {address, blocks, stride};
}

/// The caller's indices as they were while the GIL was held. Later another thread may write to the
/// caller's arrays, or the copy itself if they lie in the destination.
class kept_indices {
 public:
  kept_indices(indices const& from, indices const& to) {
    if (from.ndim() != 1 || to.ndim() != 1) {
      throw std::invalid_argument("indices have one dimension: give indices.reshape(-1)");
    }
    if (from.size() != to.size()) {
      throw std::invalid_argument("there are " + std::to_string(from.size()) +
                                  " source_indices and " + std::to_string(to.size()) +
                                  " destination_indices: give one for each block");
    }
    from_.assign(from.data(), from.data() + from.size());
    to_.assign(to.data(), to.data() + to.size());
  }

  [[nodiscard]] block_list list() const noexcept {
    return {from_.data(), to_.data(), from_.size()};
  }

 private:
  std::vector<std::int64_t> from_;
  std::vector<std::int64_t> to_;
};

/// Runs an operation that returns nothing.
template <typename Operation>
void interruptibly(Operation const& operation) {
  gil_released const released;
  run_interruptibly([&](interruption const& interrupted) {
    operation(interrupted);
    return true;
  });
}

char const* memory_of(std::uintptr_t address, std::size_t nbytes, int device) {
  device_guard const guard{device};
  switch (known_memory(address, nbytes)) {
    case known_as::of_device: return "device";
    case known_as::page_locked: return "pinned";
    case known_as::partly_locked: return "partly";
    case known_as::pageable: break;
  }
  return "pageable";
}

/// Two pools between which a kernel copies few blocks again and again, so that each call has few
/// arguments to convert: three pools of numbers take 2 us.
struct block_pair {
  block_mover* mover;
  block_copy between;
};

void bind_pair(py::module_& module) {
  py::class_<block_pair>(module, "BlockPair", py::module_local(), py::is_final())
      .def(py::init([](block_mover& mover, pool_row const& source, pool_row const& destination,
                       std::size_t block_bytes) {
             return block_pair{&mover, {pool_of(source), pool_of(destination), block_bytes}};
           }),
           py::arg("mover"), py::arg("source"), py::arg("destination"), py::arg("block_bytes"),
           py::keep_alive<1, 2>())
      .def(
          "move",
          [](block_pair const& self, indices const& from, indices const& to,
             std::optional<std::uintptr_t> stream, bool wait) {
            kept_indices const kept{from, to};
            auto const list = kept.list();
            auto const on = stream_of(stream);
            if (!wait) {  // nothing to interrupt
              gil_released const released;
              self.mover->move(move_method::kernel, self.between, list, on);
              return;
            }
            interruptibly([&](interruption const& interrupted) {
              self.mover->move(move_method::kernel, self.between, list, on, interrupted);
              if (!self.mover->captures(on)) { self.mover->wait(on, interrupted); }
            });
          },
          py::arg("source_indices").noconvert(), py::arg("destination_indices").noconvert(),
          py::arg("stream"), py::arg("wait"));
}

void bind_moves(owner_class<block_mover>& kind) {
  kind.def(
      "move",
      [](block_mover& self, std::string const& method, pool_row const& source,
         pool_row const& destination, indices const& from, indices const& to,
         std::size_t block_bytes, std::optional<std::uintptr_t> stream, bool wait) {
        auto const by = move_method_of(method);
        kept_indices const kept{from, to};
        auto const list = kept.list();
        interruptibly([&](interruption const& interrupted) {
          self.move(by, {pool_of(source), pool_of(destination), block_bytes}, list,
                    stream_of(stream), interrupted);
          if (wait && !self.captures(stream_of(stream))) {
            self.wait(stream_of(stream), interrupted);
          }
        });
      },
      py::arg("method"), py::arg("source"), py::arg("destination"),
      py::arg("source_indices").noconvert(), py::arg("destination_indices").noconvert(),
      py::arg("block_bytes"), py::arg("stream"), py::arg("wait"));
  kind.def(
      "move_given",
      [](block_mover& self, pool_row const& source, pool_row const& destination,
         std::uintptr_t from, std::uintptr_t to, std::size_t count, std::size_t block_bytes,
         std::optional<std::uintptr_t> stream) {
        self.move_given({pool_of(source), pool_of(destination), block_bytes}, from, to, count,
                        stream_of(stream));
      },
      py::arg("source"), py::arg("destination"), py::arg("source_indices"),
      py::arg("destination_indices"), py::arg("count"), py::arg("block_bytes"), py::arg("stream"),
      release_gil());
  kind.def(
      "pack",
      [](block_mover& self, ring& through, bool uploads, pool_row const& source,
         pool_row const& destination, indices const& from, indices const& to,
         std::size_t block_bytes, std::optional<std::uintptr_t> stream) {
        kept_indices const kept{from, to};
        auto const list = kept.list();
        block_copy const between{pool_of(source), pool_of(destination), block_bytes};
        interruptibly([&](interruption const& interrupted) {
          if (uploads) {
            self.upload_packed(through, between, list, stream_of(stream), interrupted);
          } else {
            self.download_packed(through, between, list, stream_of(stream), interrupted);
          }
        });
      },
      py::arg("ring"), py::arg("uploads"), py::arg("source"), py::arg("destination"),
      py::arg("source_indices").noconvert(), py::arg("destination_indices").noconvert(),
      py::arg("block_bytes"), py::arg("stream"));
}

}  // namespace

void bind_blocks(py::module_& module) {
  owner_class<block_mover> kind(module, "BlockMover", py::module_local(), py::is_final());
  kind.def(py::init([](int device) {
             gil_released const released;  // as for HostBuffer
             return make_owned<block_mover>(device);
           }),
           py::arg("device"))
      .def_property_readonly("device", &block_mover::device)
      .def_property_readonly("has_batch", &block_mover::has_batch)
      .def_property_readonly("no_kernel", &block_mover::no_kernel)
      .def_property(
          "kernel_shape",
          [](block_mover const& self) {
            return std::make_tuple(self.shape().blocks, self.shape().threads);
          },
          [](block_mover& self, std::tuple<unsigned int, unsigned int> const& shape) {
            self.set_shape({std::get<0>(shape), std::get<1>(shape)});
          })
      .def(
          "captures",
          [](block_mover const& self, std::optional<std::uintptr_t> stream) {
            return self.captures(stream_of(stream));
          },
          py::arg("stream"), release_gil())
      .def(
          "wait",
          [](block_mover& self, std::optional<std::uintptr_t> stream) {
            interruptibly([&](interruption const& interrupted) {
              self.wait(stream_of(stream), interrupted);
            });
          },
          py::arg("stream"))
      .def("close", &block_mover::close, py::arg("patience_s") = block_mover::usual_patience_s,
           release_gil())
      .def("abandon", &block_mover::abandon);
  bind_moves(kind);
  bind_pair(module);
  module.def("memory_of", &memory_of, py::arg("address"), py::arg("nbytes"), py::arg("device"),
             release_gil());
}

}  // namespace pyxfer
