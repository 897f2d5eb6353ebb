#include <array>

#include "hostrt_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

using hostrt_device = hostrt;

int attribute(cudaDeviceAttr wanted) {
  int value = -1;
  EXPECT_EQ(cudaDeviceGetAttribute(&value, wanted, 0), cudaSuccess);
  return value;
}

TEST_F(hostrt_device, has_a_recognisable_name_and_uuid) {
  std::array<char, 64> name{};
  ASSERT_EQ(driver("cuDeviceGetName", name.data(), int{64}, CUdevice{0}), CUDA_SUCCESS);
  EXPECT_STREQ(name.data(), "host memory, not a PCIe link");
  ASSERT_EQ(driver("cuDeviceGetName", name.data(), int{5}, CUdevice{0}), CUDA_SUCCESS);
  EXPECT_STREQ(name.data(), "host");
}

TEST_F(hostrt_device, has_only_attributes_that_apply_without_a_gpu) {
  EXPECT_EQ(attribute(cudaDevAttrAsyncEngineCount), 2);
  EXPECT_EQ(attribute(cudaDevAttrUnifiedAddressing), 1);
  EXPECT_EQ(attribute(cudaDevAttrCanMapHostMemory), 1);
  EXPECT_EQ(attribute(cudaDevAttrHostRegisterSupported), 1);
  EXPECT_EQ(attribute(cudaDevAttrIntegrated), 0);
  EXPECT_EQ(attribute(cudaDevAttrComputeCapabilityMajor), 0);
  int value = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrIntegrated, 1), cudaErrorInvalidDevice);
}

TEST_F(hostrt_device, versions_are_those_of_the_headers) {
  int runtime = 0;
  int driver_version = 0;
  EXPECT_EQ(cudaRuntimeGetVersion(&runtime), cudaSuccess);
  EXPECT_EQ(cudaDriverGetVersion(&driver_version), cudaSuccess);
  EXPECT_EQ(runtime, CUDART_VERSION);
  EXPECT_EQ(driver_version, CUDART_VERSION);
}

TEST_F(hostrt_device, several_devices_are_distinct) {
  set_device_count(2);
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 2);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  cudaPointerAttributes found{};
  ASSERT_EQ(cudaPointerGetAttributes(&found, device(8)), cudaSuccess);
  EXPECT_EQ(found.device, 1);
  std::array<CUuuid, 2> uuids{};
  ASSERT_EQ(driver("cuDeviceGetUuid", uuids.data(), CUdevice{0}), CUDA_SUCCESS);
  ASSERT_EQ(driver("cuDeviceGetUuid", uuids.data() + 1, CUdevice{1}), CUDA_SUCCESS);
  EXPECT_NE(std::string(uuids[0].bytes, 16), std::string(uuids[1].bytes, 16));
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
}

TEST_F(hostrt_device, without_a_driver_every_call_fails) {
  set_no_driver(cudaErrorInsufficientDriver);
  int count = -1;
  int version = -1;
  void* made = nullptr;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(cudaMalloc(&made, 8), cudaErrorInsufficientDriver);
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuInit", &made, 12000, 0, nullptr),
            cudaErrorInsufficientDriver);
  EXPECT_EQ(cudaDriverGetVersion(&version), cudaSuccess);
  EXPECT_EQ(version, 0);
  set_no_driver(0);
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
}

TEST_F(hostrt_device, no_device_is_an_error) {
  set_device_count(0);
  int count = -1;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorNoDevice);
}

TEST_F(hostrt_device, unknown_and_missing_driver_calls_are_not_found) {
  void* function = &function;
  auto found = cudaDriverEntryPointSuccess;
  ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuNothing", &function, 12000, 0, &found),
            cudaSuccess);
  EXPECT_EQ(found, cudaDriverEntryPointSymbolNotFound);
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuNothing", &function, 12000, 0, nullptr),
            cudaErrorSymbolNotFound);
  set_missing("cuEventRecord", true);
  ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuEventRecord", &function, 12000, 0, &found),
            cudaSuccess);
  EXPECT_EQ(found, cudaDriverEntryPointSymbolNotFound);
  set_missing("cuEventRecord", false);
  ASSERT_EQ(cudaGetDriverEntryPointByVersion("cuEventRecord", &function, 12000, 0, &found),
            cudaSuccess);
  EXPECT_EQ(found, cudaDriverEntryPointSuccess);
}

TEST_F(hostrt_device, a_test_sets_an_attribute_until_it_is_reset) {
  set_attribute(cudaDevAttrPageableMemoryAccess, 1);
  EXPECT_EQ(attribute(cudaDevAttrPageableMemoryAccess), 1);
  reset();
  EXPECT_EQ(attribute(cudaDevAttrPageableMemoryAccess), 0);
}

TEST_F(hostrt_device, destroying_the_context_of_an_unknown_device_is_refused) {
  EXPECT_THROW(destroy_context(1), std::invalid_argument);
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
