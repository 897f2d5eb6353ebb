#include "host_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace pyxfer::hostrt {
namespace {

constexpr auto unlimited = std::numeric_limits<std::size_t>::max();

/// The number behind `key` in a file of "key number" lines; `otherwise` when it is not there.
std::size_t number_of(std::string const& path, std::string const& key, std::size_t otherwise) {
  std::ifstream file{path};
  std::string word;
  while (file >> word) {
    std::size_t number = 0;
    if (word == key && file >> number) return number;
    file.clear();
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return otherwise;
}

std::size_t number_in(std::string const& path, std::size_t otherwise) {
  std::ifstream file{path};
  std::size_t number = 0;
  return file >> number ? number : otherwise;  // an unlimited version 2 group says "max"
}

struct group_files {
  char const* limit;
  char const* used;
  char const* statistics;
  char const* reclaimable;
};

constexpr group_files version_2{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current",
                                "/sys/fs/cgroup/memory.stat", "inactive_file"};
constexpr group_files version_1{"/sys/fs/cgroup/memory/memory.limit_in_bytes",
                                "/sys/fs/cgroup/memory/memory.usage_in_bytes",
                                "/sys/fs/cgroup/memory/memory.stat", "total_inactive_file"};

memory_amounts within_group(memory_amounts machine, group_files const& group) {
  auto const limit = number_in(group.limit, unlimited);
  if (limit >= machine.total_bytes) return machine;
  auto const used = number_in(group.used, 0);
  // File cache counts as used, but the kernel gives it up before it refuses memory.
  auto const cache = std::min(used, number_of(group.statistics, group.reclaimable, 0));
  auto const held = std::min(limit, used - cache);
  return {std::min(machine.free_bytes, limit - held), limit};
}

}  // namespace

memory_amounts memory_of_machine() {
  constexpr std::size_t kib = 1024;
  memory_amounts const machine{number_of("/proc/meminfo", "MemAvailable:", 0) * kib,
                               number_of("/proc/meminfo", "MemTotal:", 0) * kib};
  return within_group(within_group(machine, version_2), version_1);
}

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
