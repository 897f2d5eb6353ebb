#include "trace/mapped.hpp"

#include <sys/mman.h>

#include <new>

namespace pyxfer::trace {

void* map_pages(std::size_t bytes, bool touched) noexcept {
  auto const flags = MAP_PRIVATE | MAP_ANONYMOUS | (touched ? MAP_POPULATE : MAP_NORESERVE);
  auto* const found = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  return found == MAP_FAILED ? nullptr : found;
}

void unmap_pages(void* pages, std::size_t bytes) noexcept { ::munmap(pages, bytes); }

void throw_no_room() { throw std::bad_alloc{}; }

}  // namespace pyxfer::trace
