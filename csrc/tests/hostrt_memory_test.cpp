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

TEST_F(hostrt_memory, allocations_are_page_aligned) {
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(device(3)) % 4096, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pinned(3)) % 4096, 0U);
}

TEST_F(hostrt_memory, an_absurd_size_is_out_of_memory) {
  void* made = &made;
  EXPECT_EQ(cudaMalloc(&made, std::size_t{1} << 50U), cudaErrorMemoryAllocation);
  EXPECT_EQ(made, nullptr);
  EXPECT_EQ(cudaHostAlloc(&made, SIZE_MAX, 0), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(hostrt_memory, null_is_freed_without_effect) {
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(nullptr), cudaSuccess);
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

TEST_F(hostrt_memory, memory_is_registered_once) {
  std::vector<std::byte> own(100);
  ASSERT_EQ(cudaHostRegister(own.data(), 50, 0), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(own.data(), 50, 0), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(cudaHostRegister(own.data() + 40, 50, 0), cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_EQ(cudaHostRegister(own.data() + 50, 50, 0), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(own.data()), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(own.data() + 50), cudaSuccess);
}

TEST_F(hostrt_memory, only_registered_memory_is_unregistered) {
  std::vector<std::byte> own(100);
  EXPECT_EQ(cudaHostUnregister(own.data()), cudaErrorHostMemoryNotRegistered);
  EXPECT_EQ(cudaHostUnregister(pinned(10)), cudaErrorHostMemoryNotRegistered);
}

TEST_F(hostrt_memory, wrong_arguments_are_refused) {
  void* made = nullptr;
  std::byte own{};
  EXPECT_EQ(cudaMalloc(nullptr, 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostAlloc(&made, 1, 0x80), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostRegister(nullptr, 1, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostRegister(&own, 0, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostRegister(&own, 1, 0x80), cudaErrorInvalidValue);
  EXPECT_EQ(cudaHostRegister(device(10), 10, 0), cudaErrorInvalidValue);
}

TEST_F(hostrt_memory, pointer_attributes_describe_the_memory) {
  std::vector<std::byte> own(100);
  cudaPointerAttributes found{};
  auto* const on_device = device(100);
  ASSERT_EQ(cudaPointerGetAttributes(&found, on_device + 99), cudaSuccess);
  EXPECT_EQ(found.type, cudaMemoryTypeDevice);
  EXPECT_EQ(found.device, 0);
  EXPECT_EQ(found.devicePointer, on_device + 99);
  EXPECT_EQ(found.hostPointer, nullptr);
  auto* const on_host = pinned(100);
  ASSERT_EQ(cudaPointerGetAttributes(&found, on_host), cudaSuccess);
  EXPECT_EQ(found.type, cudaMemoryTypeHost);
  EXPECT_EQ(found.hostPointer, on_host);
  ASSERT_EQ(cudaHostRegister(own.data(), own.size(), 0), cudaSuccess);
  ASSERT_EQ(cudaPointerGetAttributes(&found, own.data() + 1), cudaSuccess);
  EXPECT_EQ(found.type, cudaMemoryTypeHost);
  ASSERT_EQ(cudaHostUnregister(own.data()), cudaSuccess);
  ASSERT_EQ(cudaPointerGetAttributes(&found, own.data()), cudaSuccess);
  EXPECT_EQ(found.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(found.device, cudaInvalidDeviceId);
}

TEST_F(hostrt_memory, free_memory_is_part_of_the_total) {
  std::size_t free = 0;
  std::size_t total = 0;
  std::size_t of_device = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_GT(free, 0U);
  EXPECT_LE(free, total);
  EXPECT_EQ(driver("cuDeviceTotalMem", &of_device, CUdevice{0}), CUDA_SUCCESS);
  EXPECT_EQ(of_device, total);
}

TEST_F(hostrt_memory, pointer_attributes_have_the_memory_type) {
  auto const type_of = [](void* pointer, CUresult expected) {
    unsigned int type = 0;
    EXPECT_EQ(driver("cuPointerGetAttribute", static_cast<void*>(&type),
                     CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(pointer)),
              expected);
    return type;
  };
  std::byte own{};
  EXPECT_EQ(type_of(device(8), CUDA_SUCCESS), CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(type_of(pinned(8), CUDA_SUCCESS), CU_MEMORYTYPE_HOST);
  EXPECT_EQ(type_of(&own, CUDA_ERROR_INVALID_VALUE), 0U);
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
