#include "driver_facts_support.hpp"

#include <algorithm>
#include <atomic>

namespace pyxfer::facts {
namespace {

/// Counts how many host functions have run at the same time.
struct start_barrier {
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
};

/// The code of an event when it is ready, or after a long time.
CUresult await(CUevent event) {
  auto const end = clock::now() + long_enough;
  auto code = query(event);
  for (; code == CUDA_ERROR_NOT_READY && clock::now() < end; code = query(event)) {
    std::this_thread::yield();
  }
  return code;
}

}  // namespace

void check_streams_and_events(fact_report& all) {
  start_barrier met;
  auto const meet = [](void* shared) {
    auto& known = *static_cast<start_barrier*>(shared);
    known.most = std::max(known.most.load(), ++known.inside);
    std::this_thread::sleep_for(100ms);
    --known.inside;
  };
  static_cast<void>(cudaLaunchHostFunc(all.on, meet, &met));
  static_cast<void>(cudaLaunchHostFunc(all.other, meet, &met));
  static_cast<void>(cudaDeviceSynchronize());
  all.add("host functions of two streams at a time", "1", std::to_string(met.most));

  auto const ready_after = [&] {
    auto const begin = clock::now();
    static_cast<void>(record(all.event, all.on));
    static_cast<void>(await(all.event));
    return clock::now() - begin;
  };
  auto const is_quick = [&] {  // at some time, also on a busy machine
    auto const end = clock::now() + long_enough;
    while (clock::now() < end) {
      if (ready_after() < 1ms) { return true; }
    }
    return false;
  };
  all.add("an event on an idle stream is ready within 1 ms", "yes", is_quick() ? "yes" : "no");

  {
    holding held{all.on, long_enough};
    static_cast<void>(record(all.event, all.on));
    all.add("cuEventQuery of an event on a busy stream", "600", text(query(all.event)));
    static_cast<void>(make_wait(all.other, all.event));
    all.add("cudaStreamQuery of a stream that waits for it", "600",
            text(cudaStreamQuery(all.other)));
    held.release();
    static_cast<void>(cudaDeviceSynchronize());
    all.add("cuEventQuery of that event when its stream is done", "0", text(query(all.event)));
  }
  {
    holding const held{all.on, long_enough};
    all.add("a hundred records on a busy stream", "at once", held.at_once_or_waits([&] {
      for (int i = 0; i < 100; ++i) { static_cast<void>(record(all.event, all.on)); }
    }));
  }
  static_cast<void>(cudaDeviceSynchronize());

  int devices = 0;
  static_cast<void>(cudaGetDeviceCount(&devices));
  if (devices > 1) {
    static_cast<void>(cudaSetDevice(1));
    auto* const there = make_stream();
    all.add("cuEventRecord of an event of another device", "400", text(record(all.event, there)));
    destroy(there);
    static_cast<void>(cudaSetDevice(0));
  }
}

void check_threads_without_a_context(fact_report& all) {
  all.add("event calls on a stream, in a thread without a context", "0 0 0", in_another_thread([&] {
            auto const recorded = text(record(all.event, all.on));
            auto const waiting = text(make_wait(all.other, all.event));
            return recorded + " " + waiting + " " + text(await(all.event));
          }));
  all.add("cuEventRecord on the legacy stream, in a thread without a context", "201",
          in_another_thread([&] { return text(record(all.event, nullptr)); }));
}

}  // namespace pyxfer::facts
