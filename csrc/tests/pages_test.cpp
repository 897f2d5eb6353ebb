#include "numa/pages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <string>
#include <system_error>
#include <thread>

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

std::size_t total(std::map<int, std::size_t> const& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0},
                         [](auto sum, auto const& entry) { return sum + entry.second; });
}

/// New memory, which only the test touches.
class mapping {
 public:
  explicit mapping(std::size_t bytes) : bytes_{bytes}, data_{map(bytes)} {
    // With a huge page, touching one page would touch its neighbours too.
    ::madvise(data_, bytes_, MADV_NOHUGEPAGE);
  }
  mapping(mapping const&) = delete;
  mapping& operator=(mapping const&) = delete;
  mapping(mapping&&) = delete;
  mapping& operator=(mapping&&) = delete;
  ~mapping() { ::munmap(data_, bytes_); }

  [[nodiscard]] std::uintptr_t address() const noexcept {
    return reinterpret_cast<std::uintptr_t>(data_);
  }
  void touch(std::size_t bytes) { std::memset(data_, 1, bytes); }

 private:
  static void* map(std::size_t bytes) {
    int const flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (data == MAP_FAILED) { throw std::system_error{errno, std::generic_category(), "mmap"}; }
    return data;
  }

  std::size_t bytes_;
  void* data_;
};

/// Skips the tests if a container forbids these calls, which is not a fault of the code.
class pages : public testing::Test {
 protected:
  void SetUp() override {
    try {
      auto const buffer = mapping{page_bytes()};
      static_cast<void>(pyxfer::page_nodes(buffer.address(), 1));
      static_cast<void>(pyxfer::current_policy());
    } catch (std::system_error const& error) {
      GTEST_SKIP() << "the kernel refuses NUMA calls here: " << error.what();
    }
  }
};

TEST_F(pages, of_a_written_buffer_are_on_nodes) {
  mapping buffer{16 * page_bytes()};
  buffer.touch(16 * page_bytes());
  auto const counts = pyxfer::page_nodes(buffer.address(), 16 * page_bytes());
  EXPECT_EQ(total(counts), 16U);
  EXPECT_GE(counts.begin()->first, 0);
}

TEST_F(pages, that_were_never_written_are_counted_under_the_kernels_error) {
  mapping buffer{8 * page_bytes()};
  buffer.touch(3 * page_bytes());
  auto const counts = pyxfer::page_nodes(buffer.address(), 8 * page_bytes());
  ASSERT_EQ(counts.count(-ENOENT), 1U);
  EXPECT_EQ(counts.at(-ENOENT), 5U);
}

TEST_F(pages, of_an_empty_buffer_are_none) { EXPECT_TRUE(pyxfer::page_nodes(4096, 0).empty()); }

TEST_F(pages, are_counted_if_the_buffer_covers_a_part_of_them) {
  mapping buffer{4 * page_bytes()};
  buffer.touch(4 * page_bytes());
  auto const counts = pyxfer::page_nodes(buffer.address() + page_bytes() - 1, 2);
  EXPECT_EQ(total(counts), 2U);
}

TEST_F(pages, of_a_large_buffer_are_sampled_evenly) {
  auto const count = 2 * pyxfer::most_pages_sampled;
  mapping buffer{count * page_bytes()};
  buffer.touch(count / 4 * page_bytes());
  auto const counts = pyxfer::page_nodes(buffer.address(), count * page_bytes());
  EXPECT_EQ(total(counts), pyxfer::most_pages_sampled);
  EXPECT_EQ(counts.at(-ENOENT), pyxfer::most_pages_sampled / 4 * 3);
}

TEST_F(pages, of_an_impossible_range_are_refused) {
  EXPECT_THROW(static_cast<void>(pyxfer::page_nodes(UINTPTR_MAX - 1, 4096)), std::system_error);
}

TEST_F(pages, preferring_a_node_can_be_undone) {
  auto const before = pyxfer::current_policy();
  pyxfer::prefer_node(0);
  auto const during = pyxfer::current_policy();
  pyxfer::prefer_node(std::nullopt);
  EXPECT_EQ(during.mode, MPOL_PREFERRED);
  EXPECT_EQ(during.nodes.at(0), 1U);
  EXPECT_EQ(pyxfer::current_policy().mode, before.mode);
}

TEST_F(pages, undoing_restores_a_policy_that_other_code_set) {
  auto const before = pyxfer::current_policy();
  pyxfer::restore({MPOL_BIND, {1}});
  pyxfer::prefer_node(0);
  pyxfer::prefer_node(0);
  pyxfer::prefer_node(std::nullopt);
  EXPECT_EQ(pyxfer::current_policy().mode, MPOL_PREFERRED);
  pyxfer::prefer_node(std::nullopt);
  auto const after = pyxfer::current_policy();
  pyxfer::restore(before);
  EXPECT_EQ(after.mode, MPOL_BIND);
  EXPECT_EQ(after.nodes.at(0), 1U);
}

TEST_F(pages, undoing_without_a_preferred_node_changes_nothing) {
  auto const before = pyxfer::current_policy();
  pyxfer::restore({MPOL_BIND, {1}});
  pyxfer::prefer_node(std::nullopt);
  auto const after = pyxfer::current_policy();
  pyxfer::restore(before);
  EXPECT_EQ(after.mode, MPOL_BIND);
}

TEST_F(pages, preferring_affects_only_the_calling_thread) {
  pyxfer::prefer_node(0);
  int other = -1;
  std::thread{[&other] {
    pyxfer::prefer_node(std::nullopt);
    other = pyxfer::current_policy().mode;
  }}.join();
  EXPECT_EQ(pyxfer::current_policy().mode, MPOL_PREFERRED);
  // A new thread inherits the policy, but has no earlier one to restore.
  EXPECT_EQ(other, MPOL_PREFERRED);
  pyxfer::prefer_node(std::nullopt);
}

TEST_F(pages, a_missing_node_is_refused_with_the_kernels_error) {
  auto const before = pyxfer::current_policy();
  for (int const node : {-1, 4096, 1023}) {
    try {
      pyxfer::prefer_node(node);
      FAIL() << "node " << node << " was accepted";
    } catch (std::system_error const& error) {
      EXPECT_EQ(error.code().value(), EINVAL);
      EXPECT_NE(std::string{error.what()}.find("set_mempolicy"), std::string::npos);
    }
  }
  EXPECT_EQ(pyxfer::current_policy().mode, before.mode);
  pyxfer::restore({MPOL_BIND, {1}});
  pyxfer::prefer_node(std::nullopt);  // there is nothing to undo
  auto const after = pyxfer::current_policy();
  pyxfer::restore(before);
  EXPECT_EQ(after.mode, MPOL_BIND);
}

TEST(shared_pages, are_unmapped_and_keep_their_contents) {
  auto const size = 64 * page_bytes();
  auto* const memory = static_cast<unsigned char*>(
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 7, size);
  auto const address = reinterpret_cast<std::uintptr_t>(memory);
  EXPECT_FALSE(pyxfer::unmap_shared(address + 1, page_bytes()));  // no whole page
  EXPECT_TRUE(pyxfer::unmap_shared(address + 1, size - 1));
  EXPECT_TRUE(std::all_of(memory, memory + size, [](auto byte) { return byte == 7; }));
  ::munmap(memory, size);
}

TEST(shared_pages, of_a_process_alone_are_left) {
  mapping buffer{8 * page_bytes()};
  buffer.touch(8 * page_bytes());
  EXPECT_FALSE(pyxfer::unmap_shared(buffer.address(), 8 * page_bytes()));
  EXPECT_NE(*reinterpret_cast<unsigned char const*>(buffer.address()), 0);
  EXPECT_FALSE(pyxfer::unmap_shared(0, 0));
}

}  // namespace
