#pragma once

#include "trace/cupti.hpp"

#include <array>

/// The beginnings of CUPTI's records. In every released version from `oldest_version` to
/// `newest_version` these fields have these offsets; csrc/tests/trace_layout_test.cpp compares them
/// with NVIDIA's headers.
namespace pyxfer::cupti {

struct activity {
  activity_kind kind;
};

/// A copy within one context or between two; this ends before the fields about the contexts.
struct copy_activity {
  activity_kind kind;
  std::uint8_t way;
  std::uint8_t source;
  std::uint8_t target;
  std::uint8_t flags;
  std::uint64_t bytes;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint32_t correlation;
  std::array<std::uint32_t, 10> not_used;
  std::uint64_t copies;  ///< from `version_with_copy_count` on
};

struct peer_copy_activity {
  activity_kind kind;
  std::uint8_t way;
  std::uint8_t source;
  std::uint8_t target;
  std::uint8_t flags;
  std::uint64_t bytes;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::array<std::uint32_t, 4> not_used;
  std::uint32_t correlation;
};

struct set_activity {
  activity_kind kind;
  std::uint32_t value;
  std::uint64_t bytes;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint32_t correlation;
  std::uint16_t flags;
  std::uint16_t memory;
};

struct kernel_activity {
  activity_kind kind;
  std::array<std::uint32_t, 3> not_used_first;
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t completed;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::array<std::uint32_t, 10> not_used;
  std::uint32_t correlation;
  std::uint64_t grid;
  char const* name;
};

struct call_activity {
  activity_kind kind;
  std::uint32_t callback;
  std::uint64_t start;
  std::uint64_t end;
  std::uint32_t process;
  std::uint32_t thread;
  std::uint32_t correlation;
  std::uint32_t result;
};

/// What a marker or an overhead belongs to. If it is a thread, `process` and `thread` are its ids.
struct object_id {
  std::uint32_t process;
  std::uint32_t thread;
  std::uint32_t not_used;
};

struct marker_activity {
  activity_kind kind;
  std::uint32_t flags;
  std::uint64_t timestamp;
  std::uint32_t id;
  std::uint32_t object_kind;
  object_id object;
  std::uint32_t not_used;
  char const* name;  ///< null at the end of a range
};

struct overhead_activity {
  activity_kind kind;
  std::uint32_t overhead;
  std::uint32_t object_kind;
  object_id object;
  std::uint64_t start;
  std::uint64_t end;
};

struct memory_activity {
  activity_kind kind;
  std::uint32_t operation;
  std::uint32_t memory;
  std::uint32_t correlation;
  std::uint64_t address;
  std::uint64_t bytes;
  std::uint64_t timestamp;
  std::uint64_t not_used;
  std::uint32_t process;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
};

}  // namespace pyxfer::cupti
