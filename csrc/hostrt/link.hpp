#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
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
/// devices has one; an engine does one copy at a time. The devices that copy behind an uplink at
/// once share its rate evenly.
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

  /// Counts a copy as queued until the result is dropped; null if that has no effect.
  [[nodiscard]] std::shared_ptr<void const> queued(copy_path path);

  /// The seconds of one hop of a chase; nothing if not modelled. `place` is that of the
  /// multiprocessor among all: 0 is the first and 1 the last.
  [[nodiscard]] std::optional<double> hop_s(copy_path path, double place, steady::time_point at);

 private:
  struct engine {
    direction_model model{0, 0};
    steady::time_point free_at;
  };
  /// One device behind an uplink, in one direction. A busy machine may run a stream's worker late,
  /// so a device copies while it has queued copies, and until the end of its last one.
  struct copier {
    [[nodiscard]] bool copies_at(steady::time_point at) const {
      return *queued > 0 || busy_until > at;
    }

    int device = 0;
    std::shared_ptr<std::atomic<int>> queued = std::make_shared<std::atomic<int>>(0);
    steady::time_point busy_until;
  };
  /// One direction of an uplink.
  struct side {
    [[nodiscard]] copier* of(int device);
    /// How many other devices copy in this direction.
    [[nodiscard]] std::ptrdiff_t beside(int device, steady::time_point at) const;

    double bytes_per_s = 0;
    std::vector<copier> copiers;
  };
  struct uplink {
    double h2d_beside_d2h_bytes_per_s = 0;
    side h2d;
    side d2h;
  };
  /// What a copy has of an uplink.
  struct share {
    copier* of = nullptr;
    double bytes_per_s = 0;
  };
  using engines = std::array<engine, max_devices>;

  [[nodiscard]] std::vector<engine*> engines_of(copy_path path);
  /// The shares of the uplinks on the path.
  [[nodiscard]] std::vector<share> shares_of(copy_path path, steady::time_point at);
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
