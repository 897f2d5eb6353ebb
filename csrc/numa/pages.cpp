#include "numa/pages.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <system_error>
#include <utility>

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pyxfer {
namespace {

// More nodes than any kernel is built for (CONFIG_NODES_SHIFT is at most 10). get_mempolicy refuses
// a mask that is shorter than the kernel's own.
constexpr std::size_t most_nodes = 4096;
constexpr std::size_t bits_per_word = sizeof(unsigned long) * CHAR_BIT;

[[noreturn]] void throw_system_error(int code, char const* call) {
  throw std::system_error{code, std::generic_category(), call};
}

template <typename... Arguments>
void call_kernel(char const* call, long number, Arguments... arguments) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): only libnuma has wrappers for these calls
  if (::syscall(number, arguments...) < 0) { throw_system_error(errno, call); }
}

std::vector<std::uintptr_t> sample_pages(std::uintptr_t address, std::size_t bytes) {
  auto const page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto const first = address / page;
  auto const count = ((address + bytes - 1) / page) - first + 1;
  auto const samples = std::min<std::uintptr_t>(count, most_pages_sampled);
  std::vector<std::uintptr_t> pages(samples);
  for (std::uintptr_t i = 0; i < samples; ++i) {
    // i * count / samples, in parts that cannot overflow.
    auto const offset = (i * (count / samples)) + (i * (count % samples) / samples);
    pages[i] = (first + offset) * page;
  }
  return pages;
}

memory_policy preference(int node) {
  memory_policy policy{MPOL_PREFERRED, std::vector<unsigned long>(most_nodes / bits_per_word)};
  auto const bit = static_cast<std::size_t>(node);
  policy.nodes[bit / bits_per_word] = 1UL << (bit % bits_per_word);
  return policy;
}

}  // namespace

std::map<int, std::size_t> page_nodes(std::uintptr_t address, std::size_t bytes) {
  if (bytes == 0) { return {}; }
  if (bytes - 1 > UINTPTR_MAX - address) { throw_system_error(EINVAL, "move_pages"); }
  auto pages = sample_pages(address, bytes);
  std::vector<int> status(pages.size());
  // Without target nodes the call moves nothing and only reports each page's node.
  call_kernel("move_pages", SYS_move_pages, 0, pages.size(), pages.data(), nullptr, status.data(),
              0);
  std::map<int, std::size_t> counts;
  for (int const node : status) { ++counts[node]; }
  return counts;
}

memory_policy current_policy() {
  memory_policy policy{MPOL_DEFAULT, std::vector<unsigned long>(most_nodes / bits_per_word)};
  call_kernel("get_mempolicy", SYS_get_mempolicy, &policy.mode, policy.nodes.data(), most_nodes,
              nullptr, 0UL);
  return policy;
}

void restore(memory_policy const& policy) {
  bool const is_empty =
      std::all_of(policy.nodes.begin(), policy.nodes.end(), [](auto word) { return word == 0; });
  auto const* nodes = is_empty ? nullptr : policy.nodes.data();
  auto const bits = is_empty ? 0UL : policy.nodes.size() * bits_per_word;
  call_kernel("set_mempolicy", SYS_set_mempolicy, policy.mode, nodes, bits);
}

void prefer_node(std::optional<int> node) {
  thread_local std::vector<memory_policy> found;
  if (node) {
    if (*node < 0 || static_cast<std::size_t>(*node) >= most_nodes) {
      throw_system_error(EINVAL, "set_mempolicy");
    }
    found.push_back(current_policy());
    try {
      restore(preference(*node));
    } catch (...) {
      found.pop_back();
      throw;
    }
  } else if (!found.empty()) {
    auto const policy = std::move(found.back());
    found.pop_back();
    restore(policy);
  }
}

bool unmap_shared(std::uintptr_t address, std::size_t bytes) {
  auto const page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto const begin = (address + page - 1) / page * page;
  auto const end = (address + bytes) / page * page;
  if (begin >= end) { return false; }
  auto* const first = reinterpret_cast<void*>(begin);
  auto const size = end - begin;
  // With an old size of 0 it maps the same pages again, which only shared memory allows; and only
  // within one mapping (man mremap).
  void* const again = ::mremap(first, 0, size, MREMAP_MAYMOVE);
  if (again == MAP_FAILED) { return false; }
  ::munmap(again, size);
  return ::madvise(first, size, MADV_DONTNEED) == 0;
}

}  // namespace pyxfer
