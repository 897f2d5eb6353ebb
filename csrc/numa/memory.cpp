#include "numa/memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace pyxfer {
namespace {

constexpr auto unlimited = std::numeric_limits<std::size_t>::max();

/// Reads the number after `key` in a file of "key number" lines; `otherwise` if it is missing.
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
  // File cache counts as used, but the kernel frees it before it refuses an allocation.
  auto const cache = std::min(used, number_of(group.statistics, group.reclaimable, 0));
  auto const held = std::min(limit, used - cache);
  return {std::min(machine.free_bytes, limit - held), limit};
}

}  // namespace

memory_amounts memory_of_machine() {
  constexpr std::size_t kib = 1024;
  memory_amounts const machine{number_of("/proc/meminfo", "MemAvailable:", unlimited / kib) * kib,
                               number_of("/proc/meminfo", "MemTotal:", unlimited / kib) * kib};
  return within_group(within_group(machine, version_2), version_1);
}

}  // namespace pyxfer
