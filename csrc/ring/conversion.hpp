#pragma once

#include "casts/cast.hpp"
#include "casts/item.hpp"
#include "convert/kernels.hpp"
#include "cuda/stream.hpp"
#include "ring/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace pyxfer {

/// What becomes of an array's items on the way to a device.
struct conversion {
  item_kind from;
  item_kind to;
  bool casts_on_host;     ///< in the copy to a slot, so that items of `to` cross
  item_order order;       ///< without axes they keep their order
  std::uintptr_t result;  ///< on the device; what crossed lies elsewhere, if a kernel reads it

  [[nodiscard]] bool has_kernel() const noexcept { return !casts_on_host || order.axes != 0; }
  [[nodiscard]] item_kind crossing() const noexcept { return casts_on_host ? to : from; }
  /// Of an array with these bytes.
  [[nodiscard]] std::size_t crossing_bytes(std::size_t bytes) const noexcept {
    return bytes / bytes_of(from) * bytes_of(crossing());
  }
};

/// Reads what crosses as bytes [begin, end), which are whole items.
void read_converted(layout const& array, conversion const& by, std::size_t begin, std::size_t end,
                    void* to, cast_stores stores = cast_stores::streaming);

/// The kernels of conversions in one device's primary context, which they are made in at the first
/// use. Any thread may call it, with that context current.
class conversion_kernels {
 public:
  explicit conversion_kernels(int device) noexcept : device_{device} {}

  /// Makes those that a conversion needs. Throws `kernels_unavailable_error` if the driver does not
  /// make them.
  void prepare(conversion const& by) { static_cast<void>(of(by)); }
  /// Queues the kernel for what crossed as bytes [begin, end) to `crossed`.
  void launch(conversion const& by, std::uintptr_t crossed, std::size_t begin, std::size_t end,
              stream_view on);
  /// Call it when no kernel is running.
  void close();

 private:
  [[nodiscard]] convert_kernels const& of(conversion const& by);

  int device_;
  std::mutex making_;
  std::map<std::pair<item_kind, item_kind>, std::unique_ptr<convert_kernels>> made_;
};

}  // namespace pyxfer
