#include "host_memory.hpp"

#include <sys/mman.h>

#include <fstream>
#include <sstream>
#include <string>

namespace pyxfer::hostrt {

void* map_pages(std::size_t bytes) {
  // Asked first: the kernel would promise more than there is and end the process that uses it.
  if (bytes > memory_of_machine().free_bytes) return nullptr;
  // Populated: a first touch inside a timed copy would be no part of what the copy costs.
  auto* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  return address == MAP_FAILED ? nullptr : address;
}

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

void unmap_pages(void* address, std::size_t bytes) noexcept { munmap(address, bytes); }

}  // namespace pyxfer::hostrt
