#include <cuda_runtime_api.h>

#include "activity.hpp"
#include "entry.hpp"
#include "host_memory.hpp"
#include "memory_registry.hpp"
#include "stream_registry.hpp"
#include "synchronize.hpp"

using namespace pyxfer::hostrt;

namespace {

void tell(region const& memory, bool released) {
  if (!tracing()) return;
  auto const kind =
      memory.kind == memory_kind::device ? activity_memory::device : activity_memory::pinned;
  activity_place const where{memory.device, 0, this_thread().correlation};
  emit_memory(where, kind, reinterpret_cast<void const*>(memory.address), memory.bytes, released);
}

cudaError_t allocate(void** address, std::size_t bytes, memory_kind kind) {
  if (address == nullptr) return cudaErrorInvalidValue;
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  auto* const pages = map_pages(bytes);
  if (pages == nullptr) return cudaErrorMemoryAllocation;
  auto const begin = reinterpret_cast<std::uintptr_t>(pages);
  if (!memory().add({begin, bytes, kind, this_thread().device})) {
    // Only memory that was registered and unmapped behind our back can be in the way.
    unmap_pages(pages, bytes);
    return cudaErrorMemoryAllocation;
  }
  *address = pages;
  tell({begin, bytes, kind, this_thread().device}, false);
  return cudaSuccess;
}

/// Frees what `wanted` accepts. It waits for all work first, as the real calls do.
template <typename Wanted>
cudaError_t release(void* address, Wanted const& wanted) {
  this_thread().has_context = true;
  if (address == nullptr) return cudaSuccess;
  auto const removed = memory().remove(address, wanted);
  if (!removed) return cudaErrorInvalidValue;
  auto const result = synchronize(streams().pending_anywhere());
  tell(*removed, true);
  unmap_pages(address, removed->bytes);
  return result;
}

bool is_allocated_on_host(memory_kind kind) {
  return kind == memory_kind::pinned || kind == memory_kind::write_combined;
}

bool has_only(unsigned int flags, unsigned int allowed) { return (flags & ~allowed) == 0; }

cudaPointerAttributes attributes_of(void const* address) {
  // Without const: the attributes hand out the pointer that CUDA calls take.
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
    // The driver pins writable pages unless it is told otherwise.
    if (!is_mapped(begin, size, (flags & cudaHostRegisterReadOnly) != 0)) {
      return cudaErrorInvalidValue;
    }
    region const wanted{begin, size, memory_kind::registered, this_thread().device};
    return memory().add(wanted) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered;
  });
}

cudaError_t cudaHostUnregister(void* ptr) {
  return runtime_call<index_of("cudaHostUnregister")>([&] {
    if (ptr == nullptr) return cudaErrorInvalidValue;
    auto const removed =
        memory().remove(ptr, [](memory_kind kind) { return kind == memory_kind::registered; });
    if (!removed) return cudaErrorHostMemoryNotRegistered;
    // Its owner may free it next.
    return synchronize(streams().pending_anywhere());
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, void const* ptr) {
  return runtime_call<index_of("cudaPointerGetAttributes")>([&] {
    if (attributes == nullptr || ptr == nullptr) return cudaErrorInvalidValue;
    *attributes = attributes_of(ptr);
    return cudaSuccess;
  });
}
