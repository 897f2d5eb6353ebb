#include "driver_facts_support.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>

namespace pyxfer::facts {
namespace {

cudaMemoryType type_at(void const* address) {
  cudaPointerAttributes found{};
  static_cast<void>(cudaPointerGetAttributes(&found, address));
  return found.type;
}

/// Overwrites the source after the call has returned.
void check_whether_read_late(fact_report& all, std::size_t bytes, bool busy) {
  std::vector<std::byte> source(bytes, std::byte{1});
  void* memory = nullptr;
  static_cast<void>(cudaMalloc(&memory, bytes));
  static_cast<void>(cudaMemset(memory, 0, bytes));
  static_cast<void>(cudaDeviceSynchronize());
  std::optional<holding> held;
  if (busy) { held.emplace(all.on); }
  static_cast<void>(cudaMemcpyAsync(memory, source.data(), bytes, cudaMemcpyHostToDevice, all.on));
  std::memset(source.data(), 2, bytes);
  static_cast<void>(cudaStreamSynchronize(all.on));
  std::vector<std::byte> arrived(bytes);
  static_cast<void>(cudaMemcpy(arrived.data(), memory, bytes, cudaMemcpyDeviceToHost));
  static_cast<void>(cudaFree(memory));
  auto const is_one = arrived.front() == std::byte{1} &&
                      std::memcmp(arrived.data(), arrived.data() + 1, bytes - 1) == 0;
  all.add("an upload of " + std::to_string(bytes / kib) + " KiB of pageable memory to " +
              (busy ? "a busy" : "an idle") + " stream has been read when the call returns",
          "yes", is_one ? "yes" : "no");
}

/// Page-aligned pageable memory, parts of which are registered for one query.
class partly_registered {
 public:
  static constexpr std::size_t bytes = 16 * page;

  [[nodiscard]] std::byte* begin() const {
    auto const address = reinterpret_cast<std::uintptr_t>(room_.data());
    return const_cast<std::byte*>(room_.data()) + (page - address % page) % page;
  }

  /// The result of the action while the given parts (offset and size) are registered.
  template <typename Action>
  [[nodiscard]] std::string with(
      std::initializer_list<std::pair<std::size_t, std::size_t>> const& parts,
      Action const& action) const {
    auto refused = cudaSuccess;
    for (auto const& [first, size] : parts) {
      refused = std::max(refused, cudaHostRegister(begin() + first, size, 0));
    }
    auto const answer = refused == cudaSuccess ? action() : "not registered: " + text(refused);
    for (auto const& [first, size] : parts) {
      static_cast<void>(cudaHostUnregister(begin() + first));
    }
    return answer;
  }

 private:
  std::vector<std::byte> room_ = std::vector<std::byte>(bytes + page);
};

std::string range_around(std::byte* at) {
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
  auto const address = reinterpret_cast<CUdeviceptr>(at);
  auto const code = driver("cuPointerGetAttribute", static_cast<void*>(&begin),
                           CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address);
  if (code != CUDA_SUCCESS) { return text(code); }
  static_cast<void>(driver("cuPointerGetAttribute", static_cast<void*>(&bytes),
                           CU_POINTER_ATTRIBUTE_RANGE_SIZE, address));
  return std::to_string(bytes) + " bytes, from byte " + std::to_string(address - begin) + " before";
}

}  // namespace

void check_registrations(fact_report& all) {
  partly_registered const memory;
  constexpr auto bytes = partly_registered::bytes;
  constexpr auto half = bytes / 2;
  constexpr auto quarter = bytes / 4;
  void* to = nullptr;
  static_cast<void>(cudaMalloc(&to, bytes));
  auto const copied = [&] {
    auto const code = cudaMemcpyAsync(to, memory.begin(), bytes, cudaMemcpyHostToDevice, all.on);
    static_cast<void>(cudaStreamSynchronize(all.on));
    return text(code);
  };
  all.add("a copy of memory in two registrations", "1",
          memory.with({{0, half}, {half, half}}, copied));
  all.add("a copy that begins in a registration and leaves it", "1",
          memory.with({{0, half}}, copied));
  all.add("a copy of memory of which both ends are registered", "1",
          memory.with({{0, quarter}, {bytes - quarter, quarter}}, copied));
  all.add("a copy that begins before a registration and ends in it", "0",
          memory.with({{half, half}}, copied));
  all.add("a copy that begins before a registration and ends behind it", "0",
          memory.with({{quarter, quarter}}, copied));
  static_cast<void>(cudaFree(to));
}

void check_pointers(fact_report& all) {
  partly_registered const memory;
  auto* const own = memory.begin();
  all.add("two registrations in one page", "0",
          memory.with({{0, 64}, {64, 64}}, [] { return std::string{"0"}; }));
  all.add("cudaPointerGetAttributes at both ends of a registration", "0 1 1 0",
          memory.with({{64, 64}}, [&] {
            return text(type_at(own + 63)) + " " + text(type_at(own + 64)) + " " +
                   text(type_at(own + 127)) + " " + text(type_at(own + 128));
          }));
  all.add("the range of cuPointerGetAttribute in a registration beside another",
          "64 bytes, from byte 36 before",
          memory.with({{0, 64}, {64, 64}}, [&] { return range_around(own + 100); }));
  all.add("cuPointerGetAttribute of pageable memory", "1", range_around(own));
}

void check_direct_access(fact_report& all) {
  void* on_device = nullptr;
  static_cast<void>(cudaMalloc(&on_device, page));
  std::array<int, 2> ends{};
  static_cast<void>(::pipe(ends.data()));
  auto const written = ::write(ends[1], on_device, 1);
  all.add("write(2) of device memory", "not readable",
          written < 0 && errno == EFAULT ? "not readable" : "readable");
  for (auto const end : ends) { ::close(end); }
  static_cast<void>(cudaFree(on_device));
}

void check_read_only_memory(fact_report& all) {
  int supported = 0;
  static_cast<void>(
      cudaDeviceGetAttribute(&supported, cudaDevAttrHostRegisterReadOnlySupported, 0));
  auto* const read_only = ::mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  all.add("cudaHostRegister of memory that is mapped read-only", "1",
          text(cudaHostRegister(read_only, page, 0)));
  all.add("the same with cudaHostRegisterReadOnly", supported != 0 ? "0" : "801",
          text(cudaHostRegister(read_only, page, cudaHostRegisterReadOnly)));
  static_cast<void>(cudaHostUnregister(read_only));
  ::munmap(read_only, page);
}

void check_pageable_copies(fact_report& all) {
  int accessible = 0;
  static_cast<void>(cudaDeviceGetAttribute(&accessible, cudaDevAttrPageableMemoryAccess, 0));
  // The engine does not rely on it if the device reads pageable memory itself.
  if (accessible == 0) {
    for (auto const bytes : {64 * kib, mib, 64 * mib}) {
      check_whether_read_late(all, bytes, false);
      check_whether_read_late(all, bytes, true);
    }
  }
  std::vector<std::byte> source(64 * mib, std::byte{1});
  void* memory = nullptr;
  static_cast<void>(cudaMalloc(&memory, source.size()));
  auto const upload = [&](void const* from, std::size_t bytes, clock::duration limit) {
    holding held{all.on, limit};
    auto const found = held.at_once_or_waits([&] {
      static_cast<void>(cudaMemcpyAsync(memory, from, bytes, cudaMemcpyHostToDevice, all.on));
    });
    held.release();
    static_cast<void>(cudaStreamSynchronize(all.on));
    return found;
  };
  all.add("an upload of 1 MiB of pageable memory to a busy stream returns", "at once",
          upload(source.data(), mib, long_enough));
  all.add("an upload of 64 MiB of pageable memory to a busy stream returns", "waits",
          upload(source.data(), source.size(), 200ms));
  void* pinned = nullptr;
  static_cast<void>(cudaHostAlloc(&pinned, mib, 0));
  all.add("an upload of pinned memory to a busy stream returns", "at once",
          upload(pinned, mib, long_enough));
  static_cast<void>(cudaFreeHost(pinned));
  static_cast<void>(cudaFree(memory));
}

void check_releases(fact_report& all) {
  std::vector<std::byte> own(mib);
  void* pinned = nullptr;
  void* on_device = nullptr;
  static_cast<void>(cudaHostAlloc(&pinned, mib, 0));
  static_cast<void>(cudaMalloc(&on_device, mib));
  static_cast<void>(cudaHostRegister(own.data(), mib, 0));
  auto const while_in_flight = [&](void const* from, auto const& release) {
    holding held{all.on};
    static_cast<void>(cudaMemcpyAsync(on_device, from, mib, cudaMemcpyHostToDevice, all.on));
    auto const found = held.at_once_or_waits(release);
    held.release();
    static_cast<void>(cudaStreamSynchronize(all.on));
    return found;
  };
  all.add("cudaHostUnregister of memory that a copy will read", "waits",
          while_in_flight(own.data(), [&] { static_cast<void>(cudaHostUnregister(own.data())); }));
  all.add("cudaFree of memory that a copy will write", "waits",
          while_in_flight(pinned, [&] { static_cast<void>(cudaFree(on_device)); }));
  static_cast<void>(cudaMalloc(&on_device, mib));
  all.add("cudaFreeHost of memory that a copy will read", "waits",
          while_in_flight(pinned, [&] { static_cast<void>(cudaFreeHost(pinned)); }));
  static_cast<void>(cudaFree(on_device));
}

}  // namespace pyxfer::facts
