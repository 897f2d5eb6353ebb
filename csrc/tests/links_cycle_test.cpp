#include "links/cycle.hpp"

#include "links_support.hpp"

#include <set>

namespace pyxfer::tests {
namespace {

using links_cycle = links_test;

/// The places of a cycle in its order.
std::vector<std::uint64_t> places_from(std::uintptr_t first) {
  std::vector<std::uint64_t> found;
  auto at = std::uint64_t{first};
  do {
    found.push_back(at);
    at = *reinterpret_cast<std::uint64_t const*>(inside(at));
  } while (at != first && found.size() < item);
  return found;
}

void expect_one_cycle(std::uintptr_t address, std::size_t stride, std::size_t count) {
  auto const places = places_from(address);
  ASSERT_EQ(places.size(), count);
  std::set<std::uint64_t> const different(places.begin(), places.end());
  EXPECT_EQ(different.size(), count);
  EXPECT_EQ(*different.begin(), address);
  EXPECT_EQ(*different.rbegin(), address + (count - 1) * stride);
  for (auto const place : places) { EXPECT_EQ((place - address) % stride, 0U); }
}

TEST_F(links_cycle, leads_through_host_memory) {
  host_buffer const memory{item, memory_kind::pinned, 0};
  for (auto const stride : {8U, 64U, 4096U, 24U}) {
    auto const count = make_cycle({memory.address(), item, stride, 3, flow::host});
    EXPECT_EQ(count, item / stride);
    expect_one_cycle(memory.address(), stride, count);
  }
}

TEST_F(links_cycle, leads_through_device_memory_of_several_parts) {
  constexpr std::size_t bytes = std::size_t{9} << 20U;
  device_buffer const memory{bytes, 1};
  for (auto const stride : {std::size_t{4096}, std::size_t{4096} * 3, bytes / 2}) {
    auto const count = make_cycle({memory.address(), bytes, stride, 3, 1});
    EXPECT_EQ(count, bytes / stride);
    expect_one_cycle(memory.address(), stride, count);
  }
}

TEST_F(links_cycle, depends_on_its_seed) {
  host_buffer const memory{item, memory_kind::pinned, 0};
  auto const made = [&](std::uint64_t seed) {
    static_cast<void>(make_cycle({memory.address(), item, 64, seed, flow::host}));
    return places_from(memory.address());
  };
  EXPECT_EQ(made(1), made(1));
  EXPECT_NE(made(1), made(2));
}

TEST_F(links_cycle, is_refused_without_room_for_two_pointers) {
  host_buffer const memory{item, memory_kind::pinned, 0};
  auto const refused = [&](std::uintptr_t address, std::size_t bytes, std::size_t stride) {
    EXPECT_THROW(static_cast<void>(make_cycle({address, bytes, stride, 1, flow::host})),
                 std::invalid_argument);
  };
  refused(0, item, 64);
  refused(memory.address() + 4, item - 4, 64);
  refused(memory.address(), item, 0);
  refused(memory.address(), item, 12);
  refused(memory.address(), item, item);
}

}  // namespace
}  // namespace pyxfer::tests
