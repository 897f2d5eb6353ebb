#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "control.hpp"
#include "injection.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {

/// When a copy uses an engine.
struct crossing {
  steady::time_point begin;
  steady::time_point end;
};

/// The two ends of a copy: devices, or -1 for host memory.
struct copy_path {
  int from = -1;
  int to = -1;
};

/// The modelled links: each device has one copy engine per direction, and each ordered pair of
/// devices has one; an engine does one copy at a time. Behind uplinks the copies of several devices
/// follow each other, so devices that copy all the time share the rate evenly.
class modelled_links {
 public:
  void set(direction_model h2d, direction_model d2h);
  void set_of(int device, direction_model h2d, direction_model d2h);
  void set_pair(copy_path path, direction_model model);
  void add_uplink(std::vector<int> const& devices, uplink_model const& model);
  void set_hops(hop_model const& hops);
  void reset();

  /// Reserves the engines of that path from `ready` on; returns nothing if it is not modelled. The
  /// latency is added if the copy is the `first` of a submission.
  [[nodiscard]] std::optional<crossing> occupy(copy_path path, std::size_t bytes, bool first,
                                               steady::time_point ready);

  /// The time of one hop of a chase in a block on that multiprocessor; nothing if not modelled.
  [[nodiscard]] std::optional<steady::duration> hop(copy_path path, double place,
                                                    steady::time_point at);

 private:
  struct engine {
    direction_model model{0, 0};
    steady::time_point free_at;
  };
  struct side {
    double bytes_per_s = 0;
    steady::time_point free_at;
  };
  struct uplink {
    std::vector<int> devices;
    uplink_model model;
    side h2d;
    side d2h;
  };
  using engines = std::array<engine, max_devices>;

  [[nodiscard]] std::vector<engine*> engines_of(copy_path path);
  /// The rate at which the uplink takes a copy that begins then, and when it is free.
  [[nodiscard]] std::vector<std::pair<side*, double>> uplinks_of(copy_path path,
                                                                 steady::time_point begin);
  [[nodiscard]] bool is_direct(copy_path path) const;

  std::mutex mutex_;
  engines h2d_;
  engines d2h_;
  std::map<std::pair<int, int>, engine> pairs_;
  std::vector<uplink> uplinks_;
  hop_model hops_{};
};

[[nodiscard]] modelled_links& link();

}  // namespace pyxfer::hostrt
