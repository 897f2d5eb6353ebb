#include "kernels.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "activity.hpp"
#include "entry.hpp"
#include "memory.hpp"
#include "stream_registry.hpp"
#include "transfer.hpp"

namespace pyxfer::hostrt {
namespace {

/// When the gates of one flag were opened. On a device all of them see the flag within a
/// microsecond; here a busy machine would run one of the workers much later than another, so all
/// take the time of the first.
class opening {
 public:
  /// The opening that gates of this flag share if they are queued before it is seen.
  static std::shared_ptr<opening> of(std::uint64_t flag) {
    static auto& known = *new std::map<std::uint64_t, std::weak_ptr<opening>>;
    std::scoped_lock const lock{mutex()};
    auto shared = known[flag].lock();
    if (!shared || shared->at_) {
      shared = std::make_shared<opening>();
      known[flag] = shared;
    }
    return shared;
  }

  steady::time_point seen() {
    std::scoped_lock const lock{mutex()};
    if (!at_) at_ = steady::now();
    return *at_;
  }

 private:
  static std::mutex& mutex() {
    static auto& one = *new std::mutex;
    return one;
  }

  std::optional<steady::time_point> at_;
};

/// A launch. The text decides what it does, and its name how its time is modelled.
struct launch {
  [[nodiscard]] activity_span carry_out(work_start const& start) const {
    ptx_run run{*kernel, parameters, blocks, threads, start.epoch.device};
    if (kernel->name == "copy16") {
      auto const path = copy_path{device_at(parameters.at(1)), device_at(parameters.at(0))};
      return move_modelled(parameters.at(2) * 16, path, true, start, [&](std::size_t half) {
        run.run_up_to(half == 0 ? blocks / 2 : blocks, start.epoch);
      });
    }
    run.run_up_to(blocks, start.epoch);
    auto const opened = gate && !run.has_stored();
    return {start.ready, opened ? std::max(start.ready, gate->seen()) : steady::now()};
  }

  /// -1 for host memory.
  static int device_at(std::uint64_t address) {
    auto const known = memory().find(reinterpret_cast<void const*>(address));
    return known && known->kind == memory_kind::device ? known->device : -1;
  }

  ptx_entry const* kernel;
  unsigned int blocks;
  unsigned int threads;
  std::vector<std::uint64_t> parameters;
  std::shared_ptr<opening> gate;  ///< of a gate, which stores only if it is late
};

}  // namespace

void queue_kernel(ptx_entry const& kernel, unsigned int blocks, unsigned int threads,
                  std::shared_ptr<stream> const& on, void** parameters,
                  ordered_delay const& delay) {
  launch made{&kernel, blocks, threads, {}, nullptr};
  for (auto const bytes : kernel.parameter_bytes) {
    std::uint64_t value = 0;
    std::memcpy(&value, *parameters++, bytes);
    made.parameters.push_back(value);
  }
  if (kernel.name == "gate") made.gate = opening::of(made.parameters.at(0));
  activity_place const where{on->device(), on->id(), this_thread().correlation};
  streams().enqueue(on, [=](work_start const& start) {
    auto const span = made.carry_out({start.epoch, delay.serve(start.ready)});
    if (where.correlation != 0 && is_current(start.epoch)) {
      emit_kernel(where, span, kernel.name.c_str());
    }
    return span.end;
  });
}

}  // namespace pyxfer::hostrt
