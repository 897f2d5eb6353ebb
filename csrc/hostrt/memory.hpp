#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "numa/memory.hpp"

namespace pyxfer::hostrt {

using pyxfer::memory_of_machine;

/// Whether every page of a range is mapped and readable, and unless `read_only` also writable.
[[nodiscard]] bool is_mapped(std::uintptr_t begin, std::size_t bytes, bool read_only);

enum class memory_kind { device, pinned, write_combined, registered };

struct region {
  std::uintptr_t address;
  std::size_t bytes;
  memory_kind kind;
  int device;
  /// Where the runtime itself accesses the memory; elsewhere than `address` if that is protected.
  std::byte* view;
};

/// What kind of memory a range of bytes is in.
enum class placement {
  pageable,  ///< in no known region, or beginning in none and ending in locked memory
  locked,    ///< inside one region of pinned, write-combined or registered memory
  device,    ///< inside one region of device memory
  outside,   ///< partly in a known region, so that a copy is refused
};

/// The live regions that the runtime allocated or registered; they never overlap.
class memory_registry {
 public:
  /// False if the region overlaps a known one.
  [[nodiscard]] bool add(region const& added);

  /// Removes the region that begins at `address`. Returns whether there was one.
  [[nodiscard]] bool remove(std::uintptr_t address);

  /// The region that holds `address`.
  [[nodiscard]] std::optional<region> find(void const* address) const;

  [[nodiscard]] placement place(void const* address, std::size_t bytes) const;

  [[nodiscard]] std::vector<region> all() const;

 private:
  /// The last region that begins below `end`. Only this one can contain or cut a range that ends
  /// there.
  [[nodiscard]] std::optional<region> last_below(std::uintptr_t end) const;

  mutable std::shared_mutex mutex_;
  std::map<std::uintptr_t, region> regions_;
};

[[nodiscard]] memory_registry& memory();

/// Where the runtime accesses the memory at an address of the program. All work that a device does
/// (copies, sets, kernels) accesses memory there and inside `touch_memory`, because the program's
/// addresses of device memory may be protected. The view is valid up to the end of the region of
/// `address`; memory of no region is its own view.
[[nodiscard]] std::byte* host_view(void const* address);

}  // namespace pyxfer::hostrt
