#include "cuda/memory.hpp"

#include "cuda/driver.hpp"
#include "cuda/error.hpp"
#include "cuda/wait.hpp"
#include "numa/memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace pyxfer {
namespace {

bool is_mapped_here(memory_kind kind) {
  return kind == memory_kind::pageable || kind == memory_kind::registered;
}

std::size_t page_size() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

void unregister(void* data) { PYXFER_TRY(cudaHostUnregister(data)); }
void free_pinned(void* data) { PYXFER_TRY(cudaFreeHost(data)); }

bool can_lock_read_only(int device) {
  int can = 0;
  PYXFER_TRY(cudaDeviceGetAttribute(&can, cudaDevAttrHostRegisterReadOnlySupported, device));
  return can != 0;
}

/// Writes to every page, so that no trial touches one for the first time.
void touch(void* data, std::size_t bytes) {
  auto* const first = static_cast<unsigned char*>(data);
  for (std::size_t at = 0; at < bytes; at += page_size()) { first[at] = 1; }
}

}  // namespace

memory_kind memory_kind_of(std::string const& word) {
  if (word == "pageable") { return memory_kind::pageable; }
  if (word == "pinned") { return memory_kind::pinned; }
  if (word == "registered") { return memory_kind::registered; }
  if (word == "write-combined") { return memory_kind::write_combined; }
  throw std::invalid_argument("unknown memory \"" + word +
                              "\"; known are pageable, pinned, registered, write-combined");
}

known_as known_memory(std::uintptr_t address, std::size_t bytes) {
  cudaPointerAttributes found{};
  PYXFER_TRY(cudaPointerGetAttributes(&found, reinterpret_cast<void const*>(address)));
  if (found.type == cudaMemoryTypeDevice) { return known_as::of_device; }
  if (found.type != cudaMemoryTypeHost) { return known_as::pageable; }
  CUdeviceptr begin = 0;
  std::size_t size = 0;
  std::array range{CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  std::array<void*, range.size()> answers{&begin, &size};
  PYXFER_TRY(driver().cuPointerGetAttributes(range.size(), range.data(), answers.data(),
                                             static_cast<CUdeviceptr>(address)));
  auto const holds_all = address >= begin && bytes <= size && address - begin <= size - bytes;
  return holds_all ? known_as::page_locked : known_as::partly_locked;
}

device_buffer::device_buffer(std::size_t bytes, int device)
    : owned_memory{bytes, device, [](void* data) { PYXFER_TRY(cudaFree(data)); }} {
  device_guard const guard{device};
  void* made = nullptr;
  PYXFER_TRY(cudaMalloc(&made, bytes));
  own(made);
}

host_buffer::host_buffer(std::size_t bytes, memory_kind kind, int device)
    : owned_memory{bytes, device, is_mapped_here(kind) ? unregister : free_pinned}, kind_{kind} {
  if (bytes == 0) { throw std::invalid_argument("a buffer needs at least one byte"); }
  if (is_mapped_here(kind)) { map_pages(); }
  if (kind == memory_kind::pageable) { return; }
  try {
    lock_pages();
  } catch (...) {
    if (auto* const mapped = take()) { ::munmap(mapped, bytes); }
    throw;
  }
}

void host_buffer::map_pages() {
  // The kernel may map more than there is, and kill the process when it touches the pages.
  if (size() > memory_of_machine().free_bytes) { throw std::bad_alloc{}; }
  void* const found =
      ::mmap(nullptr, size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) { throw std::bad_alloc{}; }
  own(found);
  touch(found, size());
}

void host_buffer::lock_pages() {
  device_guard const guard{device()};
  auto const begin = host_clock::now();
  if (kind_ == memory_kind::registered) {
    PYXFER_TRY(cudaHostRegister(handle(), size(), cudaHostRegisterPortable));
  } else {
    unsigned int const combined =
        kind_ == memory_kind::write_combined ? cudaHostAllocWriteCombined : 0U;
    void* made = nullptr;
    PYXFER_TRY(cudaHostAlloc(&made, size(), cudaHostAllocPortable | combined));
    own(made);
  }
  locking_s_ = seconds_between(begin, host_clock::now());
}

void host_buffer::forget(std::size_t offset, std::size_t bytes) {
  if (kind_ != memory_kind::pageable) {
    throw std::invalid_argument("only pageable memory can be given back to the system");
  }
  if (offset > size() || bytes > size() - offset) {
    throw std::out_of_range("the range to forget is not inside the buffer");
  }
  if (::madvise(reinterpret_cast<void*>(address() + offset), bytes, MADV_DONTNEED) != 0) {
    throw std::runtime_error(std::string{"madvise(MADV_DONTNEED) failed: "} + std::strerror(errno));
  }
}

void host_buffer::close() {
  auto* const data = take();
  // The pages are unmapped even if the runtime returns an error, and in a forked child too.
  auto const unmap = [this](void* mapped) { ::munmap(mapped, size()); };
  std::unique_ptr<void, decltype(unmap)> const mapping{is_mapped_here(kind_) ? data : nullptr,
                                                       unmap};
  if (kind_ != memory_kind::pageable) { release(data); }
}

registration::registration(std::uintptr_t address, std::size_t bytes, int device, bool writeable)
    : owned_memory{bytes, device, unregister} {
  auto* const data = reinterpret_cast<void*>(address);
  if (data == nullptr || bytes == 0) {
    throw std::invalid_argument("memory to lock needs an address and at least one byte");
  }
  device_guard const guard{device};
  auto status = cudaHostRegister(data, bytes, cudaHostRegisterPortable);
  if (status == cudaErrorInvalidValue && !writeable && can_lock_read_only(device)) {
    static_cast<void>(cudaGetLastError());
    status = cudaHostRegister(data, bytes, cudaHostRegisterPortable | cudaHostRegisterReadOnly);
  }
  PYXFER_TRY_STATUS("cudaHostRegister", status);
  own(data);
}

}  // namespace pyxfer
