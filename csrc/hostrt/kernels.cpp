#include "kernels.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "activity.hpp"
#include "device.hpp"
#include "entry.hpp"
#include "link.hpp"
#include "memory.hpp"
#include "peer.hpp"
#include "stream_registry.hpp"
#include "transfer.hpp"

namespace pyxfer::hostrt {
namespace {

constexpr std::size_t word_bytes = 16;
constexpr std::uint32_t any_multiprocessor = 0xffffffff;
constexpr std::chrono::microseconds poll_period{20};

template <typename Value>
Value parameter(void** parameters, std::size_t index) {
  Value value{};
  std::memcpy(&value, parameters[index], sizeof value);
  return value;
}

/// Where a kernel accesses memory; nothing if its device may not.
std::optional<int> owner_seen_from(int device, std::uintptr_t address, std::size_t bytes) {
  constexpr int host = -1;
  auto const* const at = reinterpret_cast<void const*>(address);
  switch (memory().place(at, bytes)) {
    case placement::outside: return std::nullopt;
    case placement::locked: return host;
    case placement::pageable:
      return attribute(cudaDevAttrPageableMemoryAccess, device) == 1 ? std::optional{host}
                                                                     : std::nullopt;
    case placement::device: break;
  }
  auto const known = memory().find(at);
  if (!known || !has_peer_access(device, known->device)) return std::nullopt;
  return known->device;
}

/// Queues `work`, which returns when it began and ended.
template <typename Work>
void queue(std::shared_ptr<stream> const& on, char const* name, ordered_delay const& delay,
           Work const& work) {
  activity_place const where{on->device(), on->id(), this_thread().correlation};
  auto run = [=](work_start const& start) {
    auto const span = work(work_start{start.epoch, delay.serve(start.ready)});
    if (where.correlation != 0 && is_current(start.epoch)) emit_kernel(where, span, name);
    return span.end;
  };
  streams().enqueue(on, std::move(run), {}, engine::kernels);
}

activity_span lose_by_access(work_start const& start) {
  if (is_current(start.epoch)) lose(start.epoch.device, cudaErrorIllegalAddress);
  return {start.ready, start.ready};
}

void queue_copy(std::shared_ptr<stream> const& on, void** parameters, ordered_delay const& delay) {
  auto const to = parameter<std::uint64_t>(parameters, 0);
  auto const from = parameter<std::uint64_t>(parameters, 1);
  auto const bytes = parameter<std::uint64_t>(parameters, 2) * word_bytes;
  // The owners are found again when it runs, because its memory may be gone by then.
  auto const device = on->device();
  auto const from_device = owner_seen_from(device, from, bytes).value_or(-1);
  auto const to_device = owner_seen_from(device, to, bytes).value_or(-1);
  auto const queued = link().queued({from_device, to_device});
  queue(on, "copy16", delay, [=](work_start const& start) {
    static_cast<void>(queued);  // released with this function
    if (bytes == 0) return activity_span{start.ready, start.ready};
    auto const source = owner_seen_from(device, from, bytes);
    auto const target = owner_seen_from(device, to, bytes);
    if (!source || !target) return lose_by_access(start);
    return move_modelled({reinterpret_cast<void*>(to), reinterpret_cast<void const*>(from), bytes},
                         {*source, *target}, true, start);
  });
}

// --- chase ---------------------------------------------------------------------------------------

/// What the kernel writes, in this order.
struct chase_result {
  std::int64_t cycles;
  std::int64_t nanoseconds;
  std::uint64_t last;
  std::int32_t multiprocessor;
  std::uint32_t ran;
};

struct chase_order {
  std::uint64_t first;
  std::uint64_t out;
  std::uint32_t hops;
  std::uint32_t wanted;
};

/// Follows the pointers; nothing if one leads out of the memory of the first.
std::optional<std::uint64_t> follow(chase_order const& order) {
  auto const inside = memory().find(reinterpret_cast<void const*>(order.first));
  auto at = order.first;
  for (std::uint32_t i = 0; i < order.hops; ++i) {
    if (inside && at - inside->address > inside->bytes - sizeof at) return std::nullopt;
    auto const* const seen = host_view(reinterpret_cast<void const*>(at));
    at = __atomic_load_n(reinterpret_cast<std::uint64_t const*>(seen), __ATOMIC_RELAXED);
  }
  return at;
}

activity_span run_chase(chase_order const& order, int device, work_start const& start) {
  auto const multiprocessors = attribute(cudaDevAttrMultiProcessorCount, device).value_or(1);
  auto const on = order.wanted == any_multiprocessor ? 0U : order.wanted;
  if (on >= static_cast<std::uint32_t>(multiprocessors)) return {start.ready, start.ready};
  auto const owner = owner_seen_from(device, order.first, sizeof(std::uint64_t));
  auto const target = owner_seen_from(device, order.out, sizeof(chase_result));
  if (!owner || !target) return lose_by_access(start);
  auto const place =
      multiprocessors > 1 ? static_cast<double>(on) / static_cast<double>(multiprocessors - 1) : 0;
  auto const hop_s = link().hop_s({*owner, device}, place, start.ready);
  auto began = steady::now();
  std::optional<std::uint64_t> last;
  touch_memory(start.epoch, [&] { last = follow(order); });
  auto end = steady::now();
  if (hop_s) {
    began = start.ready;
    end = began + std::chrono::nanoseconds{std::llround(*hop_s * order.hops * 1e9)};
    pause_until(end, [&] { return !is_current(start.epoch); });
  }
  if (!is_current(start.epoch)) return {start.ready, end};
  if (!last) return lose_by_access(start);
  auto const ns = std::chrono::duration_cast<std::chrono::nanoseconds>(end - began).count();
  chase_result const result{ns, ns, *last, static_cast<std::int32_t>(on), 1};  // at 1 GHz
  touch_memory(start.epoch, [&] {
    std::memcpy(host_view(reinterpret_cast<void*>(order.out)), &result, sizeof result);
  });
  return {began, end};
}

void queue_chase(std::shared_ptr<stream> const& on, void** parameters, ordered_delay const& delay) {
  chase_order const order{
      parameter<std::uint64_t>(parameters, 0), parameter<std::uint64_t>(parameters, 1),
      parameter<std::uint32_t>(parameters, 2), parameter<std::uint32_t>(parameters, 3)};
  queue(on, "chase", delay, [=, device = on->device()](work_start const& start) {
    return run_chase(order, device, start);
  });
}

// --- gate ----------------------------------------------------------------------------------------

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

void queue_gate(std::shared_ptr<stream> const& on, void** parameters, ordered_delay const& delay) {
  auto const flag = parameter<std::uint64_t>(parameters, 0);
  auto const late = parameter<std::uint64_t>(parameters, 1);
  auto const limit = std::chrono::nanoseconds{parameter<std::uint64_t>(parameters, 2)};
  auto const shared = opening::of(flag);
  queue(on, "gate", delay, [=, device = on->device()](work_start const& start) {
    if (!owner_seen_from(device, flag, sizeof(std::uint32_t)) ||
        !owner_seen_from(device, late, sizeof(std::uint32_t))) {
      return lose_by_access(start);
    }
    auto const until = steady::now() + limit;
    auto open = false;
    auto const look = [&] {
      open = __atomic_load_n(reinterpret_cast<std::uint32_t const*>(flag), __ATOMIC_ACQUIRE) != 0;
    };
    touch_memory(start.epoch, look);
    while (!open && is_current(start.epoch) && steady::now() < until) {
      std::this_thread::sleep_for(poll_period);
      touch_memory(start.epoch, look);
    }
    if (open) return activity_span{start.ready, std::max(start.ready, shared->seen())};
    touch_memory(start.epoch, [&] {
      __atomic_store_n(reinterpret_cast<std::uint32_t*>(late), 1U, __ATOMIC_RELEASE);
    });
    return activity_span{start.ready, steady::now()};
  });
}

}  // namespace

void queue_kernel(kernel_kind kind, std::shared_ptr<stream> const& on, void** parameters,
                  ordered_delay const& delay) {
  switch (kind) {
    case kernel_kind::copy16: queue_copy(on, parameters, delay); return;
    case kernel_kind::gate: queue_gate(on, parameters, delay); return;
    case kernel_kind::chase: queue_chase(on, parameters, delay); return;
  }
}

}  // namespace pyxfer::hostrt
