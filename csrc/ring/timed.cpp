#include "ring/timed.hpp"

namespace pyxfer {

sample time_drained(bench& with, ring& through, lane const& along, std::size_t slot) {
  auto const host = reinterpret_cast<std::uintptr_t>(along.host_at(slot));
  auto const device = reinterpret_cast<std::uintptr_t>(along.device_at(slot));
  layout const array{host, 1, {static_cast<std::ptrdiff_t>(along.bytes)}, {1}};
  // What is left to the driver, nobody could cancel; else the ring waits, which somebody can.
  auto const wait = !through.plan_for(along.bytes).is_left_to_driver();
  return time_drained(with, [&] {
    if (along.way == direction::h2d) {
      through.upload(array, device, std::nullopt, wait);
    } else {
      through.download(device, array, std::nullopt);
    }
  });
}

}  // namespace pyxfer
