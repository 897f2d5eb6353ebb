#include <array>
#include <cstring>

#include "hostrt_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

constexpr char const* text = ".version 6.0\n.visible .entry copy16(.param .u64 a)";

class hostrt_module : public hostrt {
 protected:
  void SetUp() override {
    hostrt::SetUp();
    ASSERT_EQ(load(loaded_, text), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (loaded_ != nullptr) { EXPECT_EQ(driver("cuModuleUnload", loaded_), CUDA_SUCCESS); }
    hostrt::TearDown();
  }

  static CUresult load(CUmodule& loaded, void const* image) {
    return driver("cuModuleLoadData", &loaded, image);
  }
  CUresult find(CUfunction& found, char const* name) {
    return driver("cuModuleGetFunction", &found, loaded_, name);
  }
  static CUresult launch(CUfunction function, unsigned int threads, cudaStream_t on,
                         void** parameters) {
    return driver<CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
                  unsigned int, unsigned int, CUstream, void**, void**>(
        "cuLaunchKernel", function, 1, 1, 1, threads, 1, 1, 0, on, parameters, nullptr);
  }

  CUmodule loaded_{};
};

TEST_F(hostrt_module, has_the_entries_of_its_text) {
  CUfunction found{};
  EXPECT_EQ(find(found, "copy16"), CUDA_SUCCESS);
  EXPECT_NE(found, nullptr);
  EXPECT_EQ(find(found, "chase"), CUDA_ERROR_NOT_FOUND);
}

TEST_F(hostrt_module, other_text_and_threads_without_a_context_are_refused) {
  CUmodule other{};
  EXPECT_EQ(load(other, "// no version"), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(load(other, nullptr), CUDA_ERROR_INVALID_VALUE);
  auto elsewhere = std::async(std::launch::async, [&] { return load(other, text); });
  EXPECT_EQ(elsewhere.get(), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(hostrt_module, is_listed_until_it_is_unloaded) {
  auto const live = made();
  ASSERT_EQ(live.size(), 1U);
  EXPECT_EQ(live[0].kind, "module");
  EXPECT_EQ(driver("cuModuleUnload", loaded_), CUDA_SUCCESS);
  EXPECT_EQ(driver("cuModuleUnload", loaded_), CUDA_ERROR_INVALID_HANDLE);
  CUfunction found{};
  EXPECT_EQ(find(found, "copy16"), CUDA_ERROR_INVALID_HANDLE);
  loaded_ = nullptr;
}

TEST_F(hostrt_module, a_launch_needs_a_function_of_the_streams_device) {
  set_device_count(2);
  CUfunction found{};
  ASSERT_EQ(find(found, "copy16"), CUDA_SUCCESS);
  std::uint64_t number = 0;
  std::array<void*, 3> parameters{&number, &number, &number};
  EXPECT_EQ(launch(found, 1, stream(), parameters.data()), CUDA_SUCCESS);
  EXPECT_EQ(launch(found, 0, stream(), parameters.data()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(found, 1025, stream(), parameters.data()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(found, 1, stream(), nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(nullptr, 1, stream(), parameters.data()), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(launch(found, 1, stream(), parameters.data()), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(hostrt_module, a_kernel_that_may_not_access_its_memory_loses_the_device) {
  CUfunction found{};
  ASSERT_EQ(find(found, "copy16"), CUDA_SUCCESS);
  std::vector<std::byte> pageable(32);
  auto* source = pageable.data();
  auto* target = device(32);
  std::uint64_t words = 2;
  std::array<void*, 3> parameters{&target, &source, &words};
  auto* const on = stream();
  ASSERT_EQ(launch(found, 1, on, parameters.data()), CUDA_SUCCESS);
  EXPECT_EQ(cudaStreamSynchronize(on), cudaErrorIllegalAddress);
  reset();
  set_attribute(cudaDevAttrPageableMemoryAccess, 1);
  pageable[31] = std::byte{7};
  ASSERT_EQ(launch(found, 1, on, parameters.data()), CUDA_SUCCESS);
  EXPECT_EQ(cudaStreamSynchronize(on), cudaSuccess);
  EXPECT_EQ(host_view(target)[31], std::byte{7});
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
