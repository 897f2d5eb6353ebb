#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "activity.hpp"
#include "control.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {

/// The two ends of a copy: devices, or -1 for host memory.
struct copy_path {
  int from = -1;
  int to = -1;
};

/// The modelled links: each device has one copy engine per direction, and each ordered pair of
/// devices has one; an engine does one copy at a time.
class modelled_links {
 public:
  /// Of a path between the host and a device, of an ordered pair of devices, or inside a device.
  void set(copy_path path, direction_model model);
  void reset();

  /// Reserves the engines of that path from `ready` on; returns nothing if it is not modelled. The
  /// latency is added if the copy is the `first` of a submission.
  [[nodiscard]] std::optional<activity_span> occupy(copy_path path, std::size_t bytes, bool first,
                                                    steady::time_point ready);

 private:
  struct engine {
    direction_model model{0, 0};
    steady::time_point free_at;
  };

  [[nodiscard]] std::vector<engine*> engines_of(copy_path path);

  std::mutex mutex_;
  std::map<std::pair<int, int>, engine> engines_;
};

[[nodiscard]] modelled_links& link();

}  // namespace pyxfer::hostrt
