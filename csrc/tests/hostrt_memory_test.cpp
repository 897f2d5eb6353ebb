#include <sys/mman.h>

#include <csignal>
#include <map>

#include "hostrt_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

using hostrt_memory = hostrt;

/// In all tests of this program, because it is set before the first.
[[maybe_unused]] bool const is_protected = [] {
  protect_device_memory(true);
  return true;
}();

TEST_F(hostrt_memory, lists_everything_that_is_allocated) {
  std::vector<std::byte> own(100);
  auto* const on_device = device(1000);
  pinned(2000);
  pinned(3000, cudaHostAllocWriteCombined);
  stream();
  event();
  ASSERT_EQ(cudaHostRegister(own.data(), own.size(), 0), cudaSuccess);
  std::map<std::string, allocation> live;
  for (auto const& found : made()) live[found.kind] = found;
  EXPECT_EQ(made().size(), 6U);
  EXPECT_EQ(live.size(), 6U);
  EXPECT_EQ(live.at("device").bytes, 1000U);
  EXPECT_EQ(live.at("device").address, reinterpret_cast<std::uintptr_t>(on_device));
  EXPECT_EQ(live.at("pinned").bytes, 2000U);
  EXPECT_EQ(live.at("write-combined").bytes, 3000U);
  EXPECT_EQ(live.at("registered").bytes, 100U);
  EXPECT_EQ(live.count("stream") + live.count("event"), 2U);
  EXPECT_EQ(cudaHostUnregister(own.data()), cudaSuccess);
}

TEST_F(hostrt_memory, only_allocated_memory_can_be_freed) {
  int own = 0;
  auto* const on_device = device(10);
  EXPECT_EQ(cudaFree(&own), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(&own), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(on_device + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(on_device), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(pinned(10)), cudaErrorInvalidValue);
}

TEST_F(hostrt_memory, of_a_device_cannot_be_accessed_directly) {
  auto* const closed = device(100);
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  // A sanitizer ends the process itself, with an exit code of its own.
  EXPECT_DEATH(*static_cast<std::byte volatile*>(closed) = std::byte{1}, "");
  protect_device_memory(false);
  auto* const open = device(100);
  protect_device_memory(true);
  open[99] = std::byte{1};
  std::byte arrived{};
  ASSERT_EQ(cudaMemcpy(closed + 99, open + 99, 1, cudaMemcpyDefault), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(&arrived, closed + 99, 1, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(arrived, std::byte{1});
}

TEST_F(hostrt_memory, that_is_not_mapped_is_not_registered) {
  auto* const gone = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ::munmap(gone, 4096);
  EXPECT_EQ(cudaHostRegister(gone, 4096, cudaHostRegisterReadOnly), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
