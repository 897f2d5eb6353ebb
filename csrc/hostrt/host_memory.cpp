#include "host_memory.hpp"

#include <sys/mman.h>

namespace pyxfer::hostrt {

void* map_pages(std::size_t bytes) {
  // Asked first: the kernel would promise more than there is and end the process that uses it.
  if (bytes > memory_of_machine().free_bytes) return nullptr;
  // Populated: a first touch inside a timed copy would be no part of what the copy costs.
  auto* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return address == MAP_FAILED ? nullptr : address;
}

void unmap_pages(void* address, std::size_t bytes) noexcept { munmap(address, bytes); }

}  // namespace pyxfer::hostrt
