#include "driver_facts_support.hpp"
#include "links/kernel_text.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

namespace pyxfer::facts {
namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;

/// The kernels of the engine, and page-locked memory that they use by the addresses of the host.
class loaded_kernels {
 public:
  loaded_kernels() : loaded_{driver("cuModuleLoadData", &module_, text_of_kernels())} {
    static_cast<void>(cudaHostAlloc(&memory_, page, cudaHostAllocPortable));
    std::memset(memory_, 0, page);
  }
  ~loaded_kernels() {
    static_cast<void>(cudaFreeHost(memory_));
    static_cast<void>(driver("cuModuleUnload", module_));
  }
  loaded_kernels(loaded_kernels const&) = delete;
  loaded_kernels& operator=(loaded_kernels const&) = delete;
  loaded_kernels(loaded_kernels&&) = delete;
  loaded_kernels& operator=(loaded_kernels&&) = delete;

  [[nodiscard]] CUresult loaded() const { return loaded_; }
  [[nodiscard]] void* memory() const { return memory_; }
  [[nodiscard]] std::atomic<std::uint32_t>& word(std::size_t line) const {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(static_cast<char*>(memory_) + 64 * line);
  }

  CUresult find(char const* name, CUfunction& found) const {
    return driver("cuModuleGetFunction", &found, module_, name);
  }

  CUresult launch(char const* name, unsigned int threads, void** parameters,
                  cudaStream_t on) const {
    CUfunction function = nullptr;
    if (auto const code = find(name, function); code != CUDA_SUCCESS) { return code; }
    return driver("cuLaunchKernel", function, 1U, 1U, 1U, threads, 1U, 1U, 0U,
                  static_cast<CUstream>(on), parameters, static_cast<void**>(nullptr));
  }

  CUresult hold(cudaStream_t on, std::size_t late_line, std::uint64_t limit_ns) const {
    auto flag = reinterpret_cast<std::uint64_t>(&word(0));
    auto late = reinterpret_cast<std::uint64_t>(&word(late_line));
    std::array<void*, 3> parameters{&flag, &late, &limit_ns};
    return launch("gate", 1, parameters.data(), on);
  }

 private:
  static void const* text_of_kernels() { return kernel_text; }

  CUmodule module_ = nullptr;
  void* memory_ = nullptr;
  CUresult loaded_;
};

void check_a_copy(fact_report& all, loaded_kernels const& kernels) {
  constexpr std::size_t bytes = 1024;
  auto* const source = static_cast<unsigned char*>(kernels.memory()) + bytes;
  std::memset(source, 7, bytes);
  void* target = nullptr;
  static_cast<void>(cudaMalloc(&target, bytes));
  static_cast<void>(cudaMemset(target, 0, bytes));
  static_cast<void>(cudaDeviceSynchronize());
  auto to = reinterpret_cast<std::uint64_t>(target);
  auto from = reinterpret_cast<std::uint64_t>(source);
  std::uint64_t words = bytes / 16 - 1;
  std::array<void*, 3> parameters{&to, &from, &words};
  auto const launched = kernels.launch("copy16", 32, parameters.data(), all.on);
  auto const ended = cudaStreamSynchronize(all.on);
  std::array<unsigned char, bytes> arrived{};
  static_cast<void>(cudaMemcpy(arrived.data(), target, bytes, cudaMemcpyDeviceToHost));
  static_cast<void>(cudaFree(target));
  all.add("copy16 of 63 words of page-locked memory, by its address on the host", "0 0 7 0",
          text(launched) + " " + text(ended) + " " + text(arrived[bytes - 17]) + " " +
              text(arrived[bytes - 16]));
}

void check_a_chase(fact_report& all, loaded_kernels const& kernels) {
  auto* const places = reinterpret_cast<std::uint64_t*>(&kernels.word(4));
  places[0] = reinterpret_cast<std::uint64_t>(&places[1]);
  places[1] = reinterpret_cast<std::uint64_t>(&places[0]);
  auto* const out = reinterpret_cast<std::uint64_t*>(&kernels.word(5));
  auto first = reinterpret_cast<std::uint64_t>(places);
  auto result = reinterpret_cast<std::uint64_t>(out);
  std::uint32_t hops = 3;
  std::uint32_t wanted = 0xffffffff;
  std::array<void*, 4> parameters{&first, &result, &hops, &wanted};
  auto const launched = kernels.launch("chase", 1, parameters.data(), all.on);
  static_cast<void>(cudaStreamSynchronize(all.on));
  all.add("chase of three hops in a cycle of two ends at the second place", "0 yes",
          text(launched) + (out[2] == places[0] && out[0] > 0 ? " yes" : " no"));
}

void check_a_computation(fact_report& all, loaded_kernels const& kernels) {
  constexpr unsigned int threads = 32;
  auto* const found = reinterpret_cast<float*>(&kernels.word(4));
  std::fill(found, found + threads + 1, 0.0F);
  auto results = reinterpret_cast<std::uint64_t>(found);
  std::uint32_t rounds = 3;
  std::array<void*, 2> parameters{&results, &rounds};
  auto const launched = kernels.launch("compute", threads, parameters.data(), all.on);
  static_cast<void>(cudaStreamSynchronize(all.on));
  auto const is_right = found[5] == -5.20182037F && found[threads - 1] != 0 && found[threads] == 0;
  all.add("compute of three rounds writes the number of the host for its sixth thread", "0 yes",
          text(launched) + (is_right ? " yes" : " no"));
}

void check_gates(fact_report& all, loaded_kernels const& kernels) {
  kernels.word(0) = 0;
  auto const held = text(kernels.hold(all.on, 1, 20 * second_ns)) + " " +
                    text(kernels.hold(all.other, 2, 20 * second_ns));
  auto const on_first = text(cudaStreamQuery(all.on));
  auto const on_second = text(cudaStreamQuery(all.other));
  kernels.word(0) = 1;
  static_cast<void>(cudaDeviceSynchronize());
  all.add("two streams behind kernels that poll one word of page-locked memory",
          "0 0, 600 600, late 0 0",
          held + ", " + on_first + " " + on_second + ", late " + text(kernels.word(1).load()) +
              " " + text(kernels.word(2).load()));
  kernels.word(0) = 0;
  static_cast<void>(kernels.hold(all.on, 1, second_ns / 100));
  static_cast<void>(cudaDeviceSynchronize());
  all.add("a gate that is not opened writes that it is late", "1", text(kernels.word(1).load()));
}

}  // namespace

void check_kernels(fact_report& all) {
  loaded_kernels const kernels;
  all.add("cuModuleLoadData of the engine's kernels", "0", text(kernels.loaded()));
  CUfunction found = nullptr;
  all.add("cuModuleGetFunction of an unknown name", "500", text(kernels.find("copy17", found)));
  cudaPointerAttributes known{};
  auto* const inside = static_cast<char*>(kernels.memory()) + 100;
  static_cast<void>(cudaPointerGetAttributes(&known, inside));
  all.add("the device's address inside page-locked memory is the host's", "yes",
          known.devicePointer == inside ? "yes" : "no");
  check_a_copy(all, kernels);
  check_a_chase(all, kernels);
  check_a_computation(all, kernels);
  check_gates(all, kernels);

  auto* const elsewhere = make_event();
  static_cast<void>(record(all.event, all.on));
  static_cast<void>(record(elsewhere, all.other));
  static_cast<void>(cudaDeviceSynchronize());
  float ms = 0;
  all.add("cuEventElapsedTime of events on two streams", "0",
          text(driver("cuEventElapsedTime", &ms, all.event, elsewhere)));
  destroy(elsewhere);
}

/// Needs two devices that can access each other.
void check_peers(fact_report& all) {
  int devices = 0;
  int can = 0;
  static_cast<void>(cudaGetDeviceCount(&devices));
  if (devices > 1) { static_cast<void>(cudaDeviceCanAccessPeer(&can, 0, 1)); }
  if (can == 0) { return; }
  void* there = nullptr;
  static_cast<void>(cudaSetDevice(1));
  static_cast<void>(cudaMalloc(&there, page));
  static_cast<void>(cudaMemset(there, 5, page));
  static_cast<void>(cudaDeviceSynchronize());
  auto* const stream_there = make_stream();
  static_cast<void>(cudaSetDevice(0));
  void* here = nullptr;
  static_cast<void>(cudaMalloc(&here, page));
  auto const copied = [&] {
    static_cast<void>(cudaMemset(here, 0, page));
    static_cast<void>(cudaDeviceSynchronize());
    auto const code = cudaMemcpyAsync(here, there, page, cudaMemcpyDefault, all.on);
    static_cast<void>(cudaStreamSynchronize(all.on));
    unsigned char last = 0;
    static_cast<void>(
        cudaMemcpy(&last, static_cast<char*>(here) + page - 1, 1, cudaMemcpyDeviceToHost));
    return text(code) + " " + text(last);
  };
  all.add("a copy of the kind default from a peer without access", "0 5", copied());
  auto const allow = [](std::string const& before) {
    return before + text(cudaDeviceEnablePeerAccess(1, 0));
  };
  auto const forbid = [](std::string const& before) {
    return before + text(cudaDeviceDisablePeerAccess(1));
  };
  all.add("cudaDeviceEnablePeerAccess, twice", "0 704", allow(allow("") + " "));
  all.add("a copy of the kind default from a peer with access", "0 5", copied());
  all.add("cudaDeviceDisablePeerAccess, twice", "0 705", forbid(forbid("") + " "));
  constexpr int most_peers = 8;
  if (devices > most_peers + 1) {
    auto last = cudaSuccess;
    for (int peer = 1; peer <= most_peers + 1; ++peer) {
      last = cudaDeviceEnablePeerAccess(peer, 0);
    }
    all.add("cudaDeviceEnablePeerAccess of a ninth peer", "711", text(last));
  }
  static_cast<void>(record(all.event, all.on));
  all.add("a stream waits for an event of another device", "0",
          text(make_wait(stream_there, all.event)));
  destroy(stream_there);
  static_cast<void>(cudaFree(here));
  static_cast<void>(cudaFree(there));
}

}  // namespace pyxfer::facts
