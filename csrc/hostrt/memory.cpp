#include "memory.hpp"

#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <mutex>
#include <sstream>
#include <string>

#include "activity.hpp"
#include "control.hpp"
#include "entry.hpp"
#include "stream_registry.hpp"

namespace pyxfer::hostrt {

namespace {

std::atomic<bool> protects_device_memory{false};

/// Maps zeroed pages.
void* map(std::size_t bytes, int rights, int flags, int file) {
  auto* const address = ::mmap(nullptr, bytes, rights, flags, file, 0);
  return address == MAP_FAILED ? nullptr : address;
}

/// Maps pages of which the program sees an address that it cannot read.
bool map_protected(region& made) {
  auto const file = ::memfd_create("device memory", MFD_CLOEXEC);
  if (file < 0) return false;
  auto const resized = ::ftruncate(file, static_cast<off_t>(made.bytes)) == 0;
  auto* const seen = resized ? map(made.bytes, PROT_NONE, MAP_SHARED, file) : nullptr;
  auto* const view =
      seen ? map(made.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file) : nullptr;
  ::close(file);
  if (seen != nullptr && view == nullptr) ::munmap(seen, made.bytes);
  made.address = reinterpret_cast<std::uintptr_t>(seen);
  made.view = static_cast<std::byte*>(view);
  return view != nullptr;
}

/// Maps the pages of a region. Returns false if there is not enough memory.
bool map_pages(region& made) {
  // The kernel would map more than there is, and kill the process when it touches the pages.
  if (made.bytes > memory_of_machine().free_bytes) return false;
  if (made.kind == memory_kind::device && protects_device_memory) return map_protected(made);
  // Populated, because a timed copy must not include the first touch of a page.
  auto* const pages =
      map(made.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1);
  made.address = reinterpret_cast<std::uintptr_t>(pages);
  made.view = static_cast<std::byte*>(pages);
  return pages != nullptr;
}

void unmap_pages(region const& known) noexcept {
  ::munmap(known.view, known.bytes);
  auto* const seen = reinterpret_cast<std::byte*>(known.address);
  if (seen != known.view) ::munmap(seen, known.bytes);
}

}  // namespace

void protect_device_memory(bool on) { protects_device_memory = on; }

bool is_mapped(std::uintptr_t begin, std::size_t bytes, bool read_only) {
  auto const end = begin + bytes;
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; begin < end && std::getline(maps, line);) {
    std::istringstream fields{line};
    std::uintptr_t first = 0;
    std::uintptr_t last = 0;
    char dash = 0;
    std::string rights;
    fields >> std::hex >> first >> dash >> last >> rights;
    if (last <= begin) continue;
    auto const usable = rights[0] == 'r' && (read_only || rights[1] == 'w');
    if (first > begin || !usable) return false;
    begin = last;
  }
  return begin >= end;
}

namespace {

std::uintptr_t end_of(region const& known) { return known.address + known.bytes; }

}  // namespace

std::optional<region> memory_registry::last_below(std::uintptr_t end) const {
  auto const next = regions_.lower_bound(end);
  if (next == regions_.begin()) return std::nullopt;
  return std::prev(next)->second;
}

bool memory_registry::add(region const& added) {
  std::unique_lock const lock{mutex_};
  auto const below = last_below(end_of(added));
  if (below && end_of(*below) > added.address) return false;
  regions_.emplace(added.address, added);
  return true;
}

bool memory_registry::remove(std::uintptr_t address) {
  std::unique_lock const lock{mutex_};
  return regions_.erase(address) == 1;
}

std::optional<region> memory_registry::find(void const* address) const {
  auto const begin = reinterpret_cast<std::uintptr_t>(address);
  std::shared_lock const lock{mutex_};
  auto const below = last_below(begin + 1);
  if (!below || end_of(*below) <= begin) return std::nullopt;
  return below;
}

placement memory_registry::place(void const* address, std::size_t bytes) const {
  auto const begin = reinterpret_cast<std::uintptr_t>(address);
  auto const end = begin + bytes;
  if (end < begin) return placement::outside;
  std::shared_lock const lock{mutex_};
  auto const below = last_below(end);
  if (!below || end_of(*below) <= begin) return placement::pageable;
  if (begin < below->address) {
    // A range that begins in pageable memory and ends in locked memory is copied as pageable
    // memory.
    auto const before = last_below(begin + 1);
    auto const begins_pageable = !before || end_of(*before) <= begin;
    auto const meets_device = below->kind == memory_kind::device;
    return begins_pageable && !meets_device ? placement::pageable : placement::outside;
  }
  if (end > end_of(*below)) return placement::outside;
  return below->kind == memory_kind::device ? placement::device : placement::locked;
}

std::vector<region> memory_registry::all() const {
  std::shared_lock const lock{mutex_};
  std::vector<region> live;
  live.reserve(regions_.size());
  for (auto const& [address, known] : regions_) live.push_back(known);
  return live;
}

memory_registry& memory() {
  static auto& the_memory = *new memory_registry;
  return the_memory;
}

std::byte* host_view(void const* address) {
  auto const known = memory().find(address);
  auto const at = reinterpret_cast<std::uintptr_t>(address);
  return known ? known->view + (at - known->address) : reinterpret_cast<std::byte*>(at);
}

}  // namespace pyxfer::hostrt

using namespace pyxfer::hostrt;

namespace {

void record_memory(region const& memory, bool released) {
  if (!tracing()) return;
  auto const on_device = memory.kind == memory_kind::device;
  pyxfer::cupti::memory_activity raw{};
  raw.kind = pyxfer::cupti::activity_kind::memory;
  raw.operation = released ? pyxfer::cupti::memory_released : pyxfer::cupti::memory_allocated;
  raw.memory =
      static_cast<std::uint32_t>(on_device ? activity_memory::device : activity_memory::pinned);
  raw.correlation = this_thread().correlation;
  raw.address = memory.address;
  raw.bytes = memory.bytes;
  raw.timestamp = activity_time(steady::now());
  raw.process = static_cast<std::uint32_t>(::getpid());
  raw.device = static_cast<std::uint32_t>(memory.device);
  raw.context = raw.device + 1;
  push(raw);
}

cudaError_t allocate(void** address, std::size_t bytes, memory_kind kind) {
  if (address == nullptr) return cudaErrorInvalidValue;
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  region made{0, bytes, kind, this_thread().device, nullptr};
  if (!map_pages(made)) return cudaErrorMemoryAllocation;
  if (!memory().add(made)) {
    // The range overlaps memory that the program registered, and unmapped before it unregistered
    // it.
    unmap_pages(made);
    return cudaErrorMemoryAllocation;
  }
  *address = reinterpret_cast<void*>(made.address);
  record_memory(made, false);
  return cudaSuccess;
}

/// The region that begins at `address`.
std::optional<region> region_at(void const* address) {
  auto const known = memory().find(address);
  auto const begins = known && known->address == reinterpret_cast<std::uintptr_t>(address);
  return begins ? known : std::nullopt;
}

/// Waits for all work of a device, because memory of its context is about to be released. The work
/// of other devices is not waited for, even if it uses the memory.
cudaError_t await_owner(region const& released) {
  auto const code = synchronize(streams().pending_on_device(released.device));
  return code == cudaSuccess ? loss_code(released.device) : code;
}

/// Frees the region at `address` if `wanted` accepts its kind. Like the real calls, it waits before
/// it frees.
template <typename Wanted>
cudaError_t release(void* address, Wanted const& wanted) {
  this_thread().has_context = true;
  if (address == nullptr) return cudaSuccess;
  auto const known = region_at(address);
  if (!known || !wanted(known->kind)) return cudaErrorInvalidValue;
  auto const result = await_owner(*known);
  if (!memory().remove(known->address)) return cudaErrorInvalidValue;
  record_memory(*known, true);
  unmap_pages(*known);
  return result;
}

bool is_allocated_on_host(memory_kind kind) {
  return kind == memory_kind::pinned || kind == memory_kind::write_combined;
}

bool has_only(unsigned int flags, unsigned int allowed) { return (flags & ~allowed) == 0; }

cudaPointerAttributes attributes_of(void const* address) {
  // Not const, because the attributes contain pointers that CUDA calls take.
  auto* const pointer = const_cast<void*>(address);
  cudaPointerAttributes found{};
  auto const known = memory().find(address);
  if (!known) {
    found.type = cudaMemoryTypeUnregistered;
    found.device = cudaInvalidDeviceId;
    return found;
  }
  auto const on_device = known->kind == memory_kind::device;
  found.type = on_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  found.device = known->device;
  found.devicePointer = pointer;
  found.hostPointer = on_device ? nullptr : pointer;
  return found;
}

}  // namespace

cudaError_t cudaMalloc(void** devPtr, std::size_t size) {
  return runtime_call<index_of("cudaMalloc")>(
      [&] { return allocate(devPtr, size, memory_kind::device); });
}

cudaError_t cudaFree(void* devPtr) {
  return runtime_call<index_of("cudaFree")>([&] {
    return release(devPtr, [](memory_kind kind) { return kind == memory_kind::device; });
  });
}

cudaError_t cudaHostAlloc(void** pHost, std::size_t size, unsigned int flags) {
  return runtime_call<index_of("cudaHostAlloc")>([&] {
    constexpr unsigned int allowed =
        cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    if (!has_only(flags, allowed)) return cudaErrorInvalidValue;
    auto const combined = (flags & cudaHostAllocWriteCombined) != 0;
    return allocate(pHost, size, combined ? memory_kind::write_combined : memory_kind::pinned);
  });
}

cudaError_t cudaFreeHost(void* ptr) {
  return runtime_call<index_of("cudaFreeHost")>([&] { return release(ptr, is_allocated_on_host); });
}

cudaError_t cudaHostRegister(void* ptr, std::size_t size, unsigned int flags) {
  return runtime_call<index_of("cudaHostRegister")>([&] {
    constexpr unsigned int allowed = cudaHostRegisterPortable | cudaHostRegisterMapped |
                                     cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
    if (ptr == nullptr || size == 0 || !has_only(flags, allowed)) return cudaErrorInvalidValue;
    auto const begin = reinterpret_cast<std::uintptr_t>(ptr);
    if (begin + size < begin || memory().place(ptr, size) == placement::device) {
      return cudaErrorInvalidValue;
    }
    // Without cudaHostRegisterReadOnly the driver requires writable pages.
    if (!is_mapped(begin, size, (flags & cudaHostRegisterReadOnly) != 0)) {
      return cudaErrorInvalidValue;
    }
    region const wanted{begin, size, memory_kind::registered, this_thread().device,
                        static_cast<std::byte*>(ptr)};
    return memory().add(wanted) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered;
  });
}

cudaError_t cudaHostUnregister(void* ptr) {
  return runtime_call<index_of("cudaHostUnregister")>([&] {
    if (ptr == nullptr) return cudaErrorInvalidValue;
    auto const known = region_at(ptr);
    if (!known || known->kind != memory_kind::registered) return cudaErrorHostMemoryNotRegistered;
    // Waits for work that uses the memory, because its owner may free it next.
    auto const code = await_owner(*known);
    return memory().remove(known->address) ? code : cudaErrorHostMemoryNotRegistered;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, void const* ptr) {
  return runtime_call<index_of("cudaPointerGetAttributes")>([&] {
    if (attributes == nullptr || ptr == nullptr) return cudaErrorInvalidValue;
    *attributes = attributes_of(ptr);
    return cudaSuccess;
  });
}
