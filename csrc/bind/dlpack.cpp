#include "cuda/dlpack.hpp"

#include "bind/bind.hpp"

#include <pybind11/stl.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>

namespace py = pybind11;

namespace pyxfer {
namespace {

using numbers = std::vector<std::int64_t>;

/// The limit of NumPy.
constexpr std::size_t most_dimensions = 64;

/// An exported array, and a reference to the object that owns its memory.
template <typename Managed>
struct handed_over {
  Managed managed{};
  numbers shape;
  numbers strides;
  PyObject* owner{};  ///< a strong reference
};

/// Whether the interpreter is being finalized. A thread that requests the GIL then is ended at
/// once, or waits forever.
bool is_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() == 0 || Py_IsFinalizing() != 0;
#else
  return Py_IsInitialized() == 0 || _Py_IsFinalizing() != 0;
#endif
}

/// Drops the owner. The consumer may call it in any thread. During finalization the owner is kept.
template <typename Managed>
void release(Managed* managed) {
  std::unique_ptr<handed_over<Managed>> const gone{
      static_cast<handed_over<Managed>*>(managed->context)};
  if (is_ending()) { return; }
  py::gil_scoped_acquire const held;
  py::error_scope const kept;  // keeps an exception that is being raised
  Py_DECREF(gone->owner);
}

/// The destructor of a capsule. A consumer renames the capsule, and then releases the array itself.
template <typename Managed>
void release_unconsumed(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, Managed::name) == 0) { return; }
  release(static_cast<Managed*>(PyCapsule_GetPointer(capsule, Managed::name)));
}

void note_version(dlpack::managed& /*made*/) {}
void note_version(dlpack::managed_versioned& made) {
  made.major = dlpack::managed_versioned::spoken_major;
}

/// Strides in items of a contiguous array in C order.
numbers strides_of(numbers const& shape) {
  numbers made(shape.size());
  std::int64_t step = 1;
  for (auto place = shape.size(); place-- > 0;) {
    auto const extent = shape[place];
    if (extent < 0) { throw std::invalid_argument("an array has no negative dimension"); }
    made[place] = step;
    if (extent != 0 && step > std::numeric_limits<std::int64_t>::max() / extent) {
      throw std::invalid_argument("an array of that shape is more than can be addressed");
    }
    step *= extent;
  }
  return made;
}

template <typename Managed>
py::object capsule_of(dlpack::tensor const& described, numbers shape, py::object owner) {
  auto made = std::make_unique<handed_over<Managed>>();
  made->strides = strides_of(shape);
  made->shape = std::move(shape);
  note_version(made->managed);
  made->managed.described = described;
  made->managed.described.shape = made->shape.data();
  made->managed.described.strides = made->strides.data();
  made->managed.context = made.get();
  made->managed.deleter = &release<Managed>;
  auto capsule = py::reinterpret_steal<py::object>(
      PyCapsule_New(&made->managed, Managed::name, &release_unconsumed<Managed>));
  if (!capsule) { throw py::error_already_set(); }
  made.release()->owner = owner.release().ptr();
  return capsule;
}

py::object to_dlpack(std::uintptr_t address, std::int32_t device_type, std::int32_t device_index,
                     std::uint8_t dtype_code, std::uint8_t dtype_bits, numbers shape,
                     bool versioned, py::object owner) {
  if (shape.size() > most_dimensions) {
    throw std::invalid_argument("an array has at most 64 dimensions");
  }
  dlpack::tensor described{};
  described.data = reinterpret_cast<void*>(address);
  described.on = {device_type, device_index};
  described.dimensions = static_cast<std::int32_t>(shape.size());
  described.type = {dtype_code, dtype_bits, 1};
  if (versioned) {
    return capsule_of<dlpack::managed_versioned>(described, std::move(shape), std::move(owner));
  }
  return capsule_of<dlpack::managed>(described, std::move(shape), std::move(owner));
}

}  // namespace

void bind_dlpack(py::module_& module) {
  module.def("to_dlpack", &to_dlpack, py::arg("address"), py::arg("device_type"),
             py::arg("device_index"), py::arg("dtype_code"), py::arg("dtype_bits"),
             py::arg("shape"), py::arg("versioned"), py::arg("owner"));
}

}  // namespace pyxfer
