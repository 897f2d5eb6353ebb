#include "driver_facts.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <future>
#include <initializer_list>
#include <memory>
#include <thread>
#include <utility>

namespace pyxfer::facts {
namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = kib * kib;
constexpr std::size_t page = 4096;
constexpr auto held_for = 200ms;

template <typename... Arguments>
CUresult driver(char const* symbol, Arguments... arguments) {
  constexpr unsigned int api = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  auto const code =
      cudaGetDriverEntryPointByVersion(symbol, &function, api, cudaEnableDefault, &found);
  if (code != cudaSuccess || function == nullptr) { return CUDA_ERROR_NOT_FOUND; }
  return reinterpret_cast<CUresult (*)(Arguments...)>(function)(arguments...);
}

template <typename Code>
std::string text(Code code) {
  return std::to_string(static_cast<int>(code));
}

template <typename Action>
auto in_another_thread(Action const& action) {
  return std::async(std::launch::async, action).get();
}

template <typename Action>
std::string at_once_or_waits(Action const& action) {
  auto const begin = clock::now();
  action();
  return clock::now() - begin < held_for / 2 ? "at once" : "waits";
}

/// Holds a stream for a while, so that whoever waits for it goes on by itself.
void hold(cudaStream_t stream) {
  static_cast<void>(cudaLaunchHostFunc(
      stream, [](void* /*unused*/) { std::this_thread::sleep_for(held_for); }, nullptr));
}

cudaStream_t make_stream(unsigned int flags = cudaStreamNonBlocking) {
  cudaStream_t made = nullptr;
  static_cast<void>(cudaStreamCreateWithFlags(&made, flags));
  return made;
}

CUevent make_event() {
  CUevent made = nullptr;
  static_cast<void>(driver("cuEventCreate", &made, unsigned{CU_EVENT_DEFAULT}));
  return made;
}

void destroy(cudaStream_t stream) { static_cast<void>(cudaStreamDestroy(stream)); }
void destroy(CUevent event) { static_cast<void>(driver("cuEventDestroy", event)); }

struct named_call {
  char const* name;
  std::function<std::string()> answer;
};

CUresult record(CUevent event, cudaStream_t on) {
  return driver("cuEventRecord", event, static_cast<CUstream>(on));
}

CUresult query(CUevent event) { return driver("cuEventQuery", event); }

CUresult make_wait(cudaStream_t waiting, CUevent event) {
  return driver("cuStreamWaitEvent", static_cast<CUstream>(waiting), event, 0U);
}

CUresult exchange_mode(CUstreamCaptureMode& mode) {
  return driver("cuThreadExchangeStreamCaptureMode", &mode);
}

std::string capture_status(cudaStream_t stream) {
  auto status = CU_STREAM_CAPTURE_STATUS_NONE;
  auto const code = driver("cuStreamIsCapturing", static_cast<CUstream>(stream), &status);
  return code == CUDA_SUCCESS ? "status " + text(status) : text(code);
}

cudaMemoryType type_at(void const* address) {
  cudaPointerAttributes found{};
  static_cast<void>(cudaPointerGetAttributes(&found, address));
  return found.type;
}

/// Asks, and keeps the answers. A stream and an event are left, whose context is gone at the end.
class questions {
 public:
  [[nodiscard]] std::vector<fact> take() { return std::move(facts_); }

  void ask_of_captures();
  void ask_of_captured_streams();
  void ask_of_registrations();
  void ask_of_pageable_copies();
  void ask_of_releases();
  void ask_of_streams_and_events();
  void ask_of_threads_without_a_context();
  void ask_of_a_destroyed_context(std::function<void()> const& destroy_context);

 private:
  void add(std::string name, std::string relied_on, std::string found) {
    facts_.push_back({std::move(name), std::move(relied_on), std::move(found)});
    static_cast<void>(cudaGetLastError());
  }

  template <typename Action>
  void during_a_capture(std::string const& name, std::string const& relied_on, Action const& action,
                        cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal);
  void ask_relaxed();
  void ask_whether_read_late(std::size_t bytes, bool busy);

  std::vector<fact> facts_;
  cudaStream_t on_ = make_stream();
  cudaStream_t other_ = make_stream();
  CUevent event_ = make_event();
};

/// What the action answered, and whether the capture was whole behind it.
template <typename Action>
void questions::during_a_capture(std::string const& name, std::string const& relied_on,
                                 Action const& action, cudaStreamCaptureMode mode) {
  auto* const captured = make_stream();
  static_cast<void>(cudaStreamBeginCapture(captured, mode));
  auto const found = action(captured);
  cudaGraph_t graph = nullptr;
  auto const end = cudaStreamEndCapture(captured, &graph);
  add(name, relied_on, found + ", capture " + text(end));
  destroy(captured);
}

void questions::ask_of_captures() {
  auto const queried = [&](cudaStream_t) { return text(query(event_)); };
  auto const queried_elsewhere = [&](cudaStream_t on) {
    return in_another_thread([&] { return queried(on); });
  };
  during_a_capture("cuEventQuery beside a global capture", "900, capture 901", queried);
  during_a_capture("cuEventQuery beside a global capture, in another thread", "900, capture 901",
                   queried_elsewhere);
  during_a_capture("cuEventQuery beside a thread-local capture, in another thread", "0, capture 0",
                   queried_elsewhere, cudaStreamCaptureModeThreadLocal);
  during_a_capture("cuEventQuery beside a relaxed capture", "0, capture 0", queried,
                   cudaStreamCaptureModeRelaxed);
  void* memory = nullptr;
  during_a_capture("cudaMalloc beside a global capture, in another thread", "900, capture 901",
                   [&](cudaStream_t) {
                     return in_another_thread([&] { return text(cudaMalloc(&memory, page)); });
                   });
  during_a_capture(
      "cudaHostAlloc beside a global capture, in another thread", "900, capture 901",
      [&](cudaStream_t) {
        return in_another_thread([&] { return text(cudaHostAlloc(&memory, page, 0)); });
      });
  ask_relaxed();

  void* from = nullptr;
  void* to = nullptr;
  static_cast<void>(cudaHostAlloc(&from, page, 0));
  static_cast<void>(cudaMalloc(&to, page));
  CUevent created = nullptr;
  std::vector<named_call> const always_allowed{
      {"cudaPointerGetAttributes",
       [&] {
         cudaPointerAttributes found{};
         return text(cudaPointerGetAttributes(&found, from));
       }},
      {"cuEventCreate",
       [&] {
         static_cast<void>(cudaSetDevice(0));
         return text(driver("cuEventCreate", &created, unsigned{CU_EVENT_DEFAULT}));
       }},
      {"cudaMemcpyAsync on another stream",
       [&] { return text(cudaMemcpyAsync(to, from, page, cudaMemcpyDefault, other_)); }},
      {"cuEventRecord on another stream", [&] { return text(record(event_, other_)); }},
      {"cuStreamWaitEvent on another stream", [&] { return text(make_wait(on_, event_)); }},
  };
  for (auto const& [name, answer] : always_allowed) {
    during_a_capture(std::string{name} + " beside a global capture", "0, capture 0",
                     [&, &answer = answer](cudaStream_t) { return in_another_thread(answer); });
  }
  destroy(created);
  static_cast<void>(cudaFreeHost(from));
  static_cast<void>(cudaFree(to));
}

/// All that the engine does under a guard.
void questions::ask_relaxed() {
  void* on_device = nullptr;
  void* on_host = nullptr;
  std::vector<std::byte> own(page);
  auto* const late = make_event();
  cudaStream_t created = nullptr;
  std::vector<named_call> const relaxed{
      {"cuEventQuery", [&] { return text(query(event_)); }},
      {"cudaMalloc", [&] { return text(cudaMalloc(&on_device, page)); }},
      {"cudaFree", [&] { return text(cudaFree(on_device)); }},
      {"cudaHostAlloc", [&] { return text(cudaHostAlloc(&on_host, page, 0)); }},
      {"cudaFreeHost", [&] { return text(cudaFreeHost(on_host)); }},
      {"cudaHostRegister", [&] { return text(cudaHostRegister(own.data(), page, 0)); }},
      {"cudaHostUnregister", [&] { return text(cudaHostUnregister(own.data())); }},
      {"cudaStreamCreateWithFlags",
       [&] { return text(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking)); }},
      {"cuEventDestroy", [&] { return text(driver("cuEventDestroy", late)); }},
  };
  for (auto const& [name, answer] : relaxed) {
    auto const relaxed_call = [&wanted = answer] {
      auto mode = CU_STREAM_CAPTURE_MODE_RELAXED;
      static_cast<void>(exchange_mode(mode));
      auto const found = wanted();
      static_cast<void>(exchange_mode(mode));
      return found;
    };
    during_a_capture(std::string{name} + " in a relaxed thread beside a global capture",
                     "0, capture 0", [&](cudaStream_t) { return in_another_thread(relaxed_call); });
  }
  destroy(created);
  during_a_capture("cuEventQuery in the capturing thread, relaxed", "0, capture 0",
                   [&](cudaStream_t) {
                     auto mode = CU_STREAM_CAPTURE_MODE_RELAXED;
                     static_cast<void>(exchange_mode(mode));
                     auto const found = text(query(event_));
                     static_cast<void>(exchange_mode(mode));
                     return found;
                   });
}

void questions::ask_of_captured_streams() {
  auto const relaxed = cudaStreamCaptureModeRelaxed;
  during_a_capture("cuStreamIsCapturing of a captured stream", "status 1, capture 0",
                   [](cudaStream_t captured) { return capture_status(captured); });
  during_a_capture("cuStreamIsCapturing of another stream", "status 0, capture 0",
                   [&](cudaStream_t) { return capture_status(other_); });
  during_a_capture(
      "cuEventQuery of an event that was recorded in a captured stream", "0 907, capture 901",
      [](cudaStream_t captured) {
        auto* const recorded = make_event();
        auto const code = text(record(recorded, captured));
        auto const found = code + " " + text(query(recorded));
        destroy(recorded);
        return found;
      },
      relaxed);
  during_a_capture(
      "cudaStreamQuery of a captured stream", "900, capture 901",
      [](cudaStream_t captured) { return text(cudaStreamQuery(captured)); }, relaxed);
  during_a_capture(
      "cuStreamIsCapturing once the capture is invalid", "status 2, capture 901",
      [](cudaStream_t captured) {
        static_cast<void>(cudaStreamQuery(captured));
        return capture_status(captured);
      },
      relaxed);

  auto* const blocking = make_stream(cudaStreamDefault);
  static_cast<void>(cudaStreamBeginCapture(blocking, relaxed));
  auto const of_legacy = capture_status(nullptr);
  cudaGraph_t graph = nullptr;
  auto const end = cudaStreamEndCapture(blocking, &graph);
  add("cuStreamIsCapturing of the legacy stream beside the capture of a blocking one",
      "906, capture 0", of_legacy + ", capture " + text(end));
  destroy(blocking);

  // The end of this capture is no fact: the stream that was drawn in has not been joined.
  auto* const captured = make_stream();
  auto* const drawn = make_stream();
  auto* const recorded = make_event();
  static_cast<void>(cudaStreamBeginCapture(captured, relaxed));
  static_cast<void>(record(recorded, captured));
  auto const wait = make_wait(drawn, recorded);
  add("a stream that waits for a captured event is captured too", "0 status 1",
      text(wait) + " " + capture_status(drawn));
  static_cast<void>(cudaStreamEndCapture(captured, &graph));
  destroy(captured);
  destroy(drawn);
  destroy(recorded);
}

void questions::ask_of_registrations() {
  constexpr std::size_t quarter = 4 * page;
  constexpr std::size_t all = 4 * quarter;
  std::vector<std::byte> room(all + page);
  auto* const own = reinterpret_cast<std::byte*>(
      (reinterpret_cast<std::uintptr_t>(room.data()) + page - 1) / page * page);
  void* to = nullptr;
  static_cast<void>(cudaMalloc(&to, all));
  auto const with_registered =
      [&](std::initializer_list<std::pair<std::size_t, std::size_t>> const& parts,
          auto const& action) {
        auto failed = cudaSuccess;
        for (auto const& [first, bytes] : parts) {
          auto const code = cudaHostRegister(own + first, bytes, 0);
          if (code != cudaSuccess) { failed = code; }
        }
        auto const found = failed == cudaSuccess ? action() : "not registered: " + text(failed);
        for (auto const& [first, bytes] : parts) {
          static_cast<void>(cudaHostUnregister(own + first));
        }
        return found;
      };
  auto const copied = [&] {
    auto const code = cudaMemcpyAsync(to, own, all, cudaMemcpyHostToDevice, on_);
    static_cast<void>(cudaStreamSynchronize(on_));
    return text(code);
  };
  add("a copy of memory in two registrations", "1",
      with_registered({{0, all / 2}, {all / 2, all / 2}}, copied));
  add("a copy that begins in a registration and leaves it", "1",
      with_registered({{0, all / 2}}, copied));
  add("a copy of memory of which both ends are registered", "1",
      with_registered({{0, quarter}, {all - quarter, quarter}}, copied));
  add("a copy that begins before a registration and ends in it", "0",
      with_registered({{all / 2, all / 2}}, copied));
  add("a copy that begins before a registration and ends behind it", "0",
      with_registered({{quarter, quarter}}, copied));
  add("two registrations in one page", "0",
      with_registered({{0, 64}, {64, 64}}, [] { return std::string{"0"}; }));
  add("cudaPointerGetAttributes at both ends of a registration", "0 1 1 0",
      with_registered({{64, 64}}, [&] {
        return text(type_at(own + 63)) + " " + text(type_at(own + 64)) + " " +
               text(type_at(own + 127)) + " " + text(type_at(own + 128));
      }));
  auto const range_of = [&](std::byte* at) {
    CUdeviceptr begin = 0;
    std::size_t bytes = 0;
    auto const address = reinterpret_cast<CUdeviceptr>(at);
    auto const code = driver("cuPointerGetAttribute", static_cast<void*>(&begin),
                             CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address);
    if (code != CUDA_SUCCESS) { return text(code); }
    static_cast<void>(driver("cuPointerGetAttribute", static_cast<void*>(&bytes),
                             CU_POINTER_ATTRIBUTE_RANGE_SIZE, address));
    auto const first = begin - reinterpret_cast<CUdeviceptr>(own);
    return std::to_string(first) + " and " + std::to_string(bytes) + " bytes";
  };
  add("the range of cuPointerGetAttribute in a registration beside another", "64 and 64 bytes",
      with_registered({{0, 64}, {64, 64}}, [&] { return range_of(own + 100); }));
  add("cuPointerGetAttribute of pageable memory", "1", range_of(own));
  static_cast<void>(cudaFree(to));

  int supported = 0;
  static_cast<void>(
      cudaDeviceGetAttribute(&supported, cudaDevAttrHostRegisterReadOnlySupported, 0));
  auto* const read_only = ::mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  add("cudaHostRegister of memory that is mapped read-only", "1",
      text(cudaHostRegister(read_only, page, 0)));
  add("the same with cudaHostRegisterReadOnly", supported != 0 ? "0" : "801",
      text(cudaHostRegister(read_only, page, cudaHostRegisterReadOnly)));
  static_cast<void>(cudaHostUnregister(read_only));
  ::munmap(read_only, page);
}

/// Overwrites the source when the call has returned.
void questions::ask_whether_read_late(std::size_t bytes, bool busy) {
  std::vector<std::byte> source(bytes, std::byte{1});
  void* memory = nullptr;
  static_cast<void>(cudaMalloc(&memory, bytes));
  static_cast<void>(cudaMemset(memory, 0, bytes));
  static_cast<void>(cudaDeviceSynchronize());
  if (busy) { hold(on_); }
  static_cast<void>(cudaMemcpyAsync(memory, source.data(), bytes, cudaMemcpyHostToDevice, on_));
  std::memset(source.data(), 2, bytes);
  static_cast<void>(cudaStreamSynchronize(on_));
  std::vector<std::byte> arrived(bytes);
  static_cast<void>(cudaMemcpy(arrived.data(), memory, bytes, cudaMemcpyDeviceToHost));
  static_cast<void>(cudaFree(memory));
  auto const is_one = arrived.front() == std::byte{1} &&
                      std::memcmp(arrived.data(), arrived.data() + 1, bytes - 1) == 0;
  add("an upload of " + std::to_string(bytes / kib) + " KiB of pageable memory to " +
          (busy ? "a busy" : "an idle") + " stream has been read when the call returns",
      "yes", is_one ? "yes" : "no");
}

void questions::ask_of_pageable_copies() {
  int accessible = 0;
  static_cast<void>(cudaDeviceGetAttribute(&accessible, cudaDevAttrPageableMemoryAccess, 0));
  // Where the device reads pageable memory itself, the engine does not rely on it.
  if (accessible == 0) {
    for (auto const bytes : {64 * kib, mib, 64 * mib}) {
      ask_whether_read_late(bytes, false);
      ask_whether_read_late(bytes, true);
    }
  }
  std::vector<std::byte> source(64 * mib, std::byte{1});
  void* memory = nullptr;
  static_cast<void>(cudaMalloc(&memory, source.size()));
  auto const upload = [&](void const* from, std::size_t bytes) {
    hold(on_);
    auto const found = at_once_or_waits([&] {
      static_cast<void>(cudaMemcpyAsync(memory, from, bytes, cudaMemcpyHostToDevice, on_));
    });
    static_cast<void>(cudaStreamSynchronize(on_));
    return found;
  };
  add("an upload of 1 MiB of pageable memory to a busy stream returns", "at once",
      upload(source.data(), mib));
  add("an upload of 64 MiB of pageable memory to a busy stream returns", "waits",
      upload(source.data(), source.size()));
  void* pinned = nullptr;
  static_cast<void>(cudaHostAlloc(&pinned, mib, 0));
  add("an upload of pinned memory to a busy stream returns", "at once", upload(pinned, mib));
  static_cast<void>(cudaFreeHost(pinned));
  static_cast<void>(cudaFree(memory));
}

void questions::ask_of_releases() {
  std::vector<std::byte> own(mib);
  void* pinned = nullptr;
  void* on_device = nullptr;
  static_cast<void>(cudaHostAlloc(&pinned, mib, 0));
  static_cast<void>(cudaMalloc(&on_device, mib));
  static_cast<void>(cudaHostRegister(own.data(), mib, 0));
  auto const while_in_flight = [&](void const* from, auto const& release) {
    hold(on_);
    static_cast<void>(cudaMemcpyAsync(on_device, from, mib, cudaMemcpyHostToDevice, on_));
    auto const found = at_once_or_waits(release);
    static_cast<void>(cudaStreamSynchronize(on_));
    return found;
  };
  add("cudaHostUnregister of memory that a copy will read", "waits",
      while_in_flight(own.data(), [&] { static_cast<void>(cudaHostUnregister(own.data())); }));
  add("cudaFree of memory that a copy will write", "waits",
      while_in_flight(pinned, [&] { static_cast<void>(cudaFree(on_device)); }));
  static_cast<void>(cudaMalloc(&on_device, mib));
  add("cudaFreeHost of memory that a copy will read", "waits",
      while_in_flight(pinned, [&] { static_cast<void>(cudaFreeHost(pinned)); }));
  static_cast<void>(cudaFree(on_device));
}

/// How many host functions have been at work at a time.
struct meeting {
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
};

void questions::ask_of_streams_and_events() {
  meeting met;
  auto const meet = [](void* shared) {
    auto& known = *static_cast<meeting*>(shared);
    known.most = std::max(known.most.load(), ++known.inside);
    std::this_thread::sleep_for(held_for / 2);
    --known.inside;
  };
  static_cast<void>(cudaLaunchHostFunc(on_, meet, &met));
  static_cast<void>(cudaLaunchHostFunc(other_, meet, &met));
  static_cast<void>(cudaDeviceSynchronize());
  add("host functions of two streams at a time", "1", std::to_string(met.most));

  auto const ready_after = [&] {
    auto const begin = clock::now();
    static_cast<void>(record(event_, on_));
    while (query(event_) == CUDA_ERROR_NOT_READY) { std::this_thread::yield(); }
    return clock::now() - begin;
  };
  auto quickest = ready_after();
  for (int i = 0; i < 10; ++i) { quickest = std::min(quickest, ready_after()); }
  add("an event on an idle stream is ready within 1 ms", "yes", quickest < 1ms ? "yes" : "no");

  hold(on_);
  static_cast<void>(record(event_, on_));
  add("cuEventQuery of an event on a busy stream", "600", text(query(event_)));
  static_cast<void>(make_wait(other_, event_));
  add("cudaStreamQuery of a stream that waits for it", "600", text(cudaStreamQuery(other_)));
  static_cast<void>(cudaDeviceSynchronize());
  add("cuEventQuery of that event when its stream is done", "0", text(query(event_)));

  hold(on_);
  add("a hundred records on a busy stream", "at once", at_once_or_waits([&] {
        for (int i = 0; i < 100; ++i) { static_cast<void>(record(event_, on_)); }
      }));
  static_cast<void>(cudaDeviceSynchronize());

  int devices = 0;
  static_cast<void>(cudaGetDeviceCount(&devices));
  if (devices > 1) {
    static_cast<void>(cudaSetDevice(1));
    auto* const there = make_stream();
    add("cuEventRecord of an event of another device", "400", text(record(event_, there)));
    destroy(there);
    static_cast<void>(cudaSetDevice(0));
  }
}

void questions::ask_of_threads_without_a_context() {
  add("event calls on a stream, in a thread without a context", "0 0 0", in_another_thread([&] {
        auto const recorded = text(record(event_, on_));
        auto const waiting = text(make_wait(other_, event_));
        auto code = query(event_);
        while (code == CUDA_ERROR_NOT_READY) { code = query(event_); }
        return recorded + " " + waiting + " " + text(code);
      }));
  add("cuEventRecord on the legacy stream, in a thread without a context", "201",
      in_another_thread([&] { return text(record(event_, nullptr)); }));
}

void questions::ask_of_a_destroyed_context(std::function<void()> const& destroy_context) {
  destroy(other_);
  destroy_context();
  add("cuEventQuery when its context has been destroyed", "709", text(query(event_)));
  void* memory = nullptr;
  static_cast<void>(cudaMalloc(&memory, page));  // in a new context
  std::vector<std::byte> own(page);
  add("cudaMemcpyAsync on a stream whose context has been destroyed", "400",
      text(cudaMemcpyAsync(memory, own.data(), page, cudaMemcpyHostToDevice, on_)));
  static_cast<void>(cudaFree(memory));
}

}  // namespace

std::vector<fact> ask_driver(std::function<void()> const& destroy_context) {
  static_cast<void>(cudaSetDevice(0));
  questions all;
  all.ask_of_captures();
  all.ask_of_captured_streams();
  all.ask_of_registrations();
  all.ask_of_pageable_copies();
  all.ask_of_releases();
  all.ask_of_streams_and_events();
  all.ask_of_threads_without_a_context();
  all.ask_of_a_destroyed_context(destroy_context);
  return all.take();
}

}  // namespace pyxfer::facts
