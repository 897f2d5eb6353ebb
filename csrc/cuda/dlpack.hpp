#pragma once

#include <cstdint>

/// The structures of dlpack.h, versions 0 and 1, by which libraries exchange arrays. The order and
/// sizes of the fields are those of dlpack.h; the names are not.
namespace pyxfer::dlpack {

struct device {
  std::int32_t kind;  ///< 1 for host memory, 2 for GPU memory
  std::int32_t index;
};

struct data_type {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct tensor {
  void* data;
  device on;
  std::int32_t dimensions;
  data_type type;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in items
  std::uint64_t byte_offset;
};

/// A capsule named `dltensor` points to it. The consumer renames the capsule, and calls the deleter
/// once, from any thread.
struct managed {
  static constexpr auto name = "dltensor";

  tensor described;
  void* context;
  void (*deleter)(managed*);
};

/// The same in version 1, in a capsule named `dltensor_versioned`.
struct managed_versioned {
  static constexpr auto name = "dltensor_versioned";
  static constexpr std::uint32_t spoken_major = 1;

  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*deleter)(managed_versioned*);
  std::uint64_t flags;
  tensor described;
};

// On every platform that CUDA supports.
static_assert(sizeof(tensor) == 48);
static_assert(sizeof(managed) == 64);
static_assert(sizeof(managed_versioned) == 80);

}  // namespace pyxfer::dlpack
