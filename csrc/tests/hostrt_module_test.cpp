#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "hostrt_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

/// A kernel `test` whose parameter is in %at.
std::string text_of(std::string const& body) {
  return ".version 6.0\n.target sm_50\n.address_size 64\n"
         ".visible .entry test(.param .u64 place)\n{\n"
         "  .reg .u64 %at, %a;\n  .reg .u32 %v, %w;\n  .reg .b32 %x<4>;\n  .reg .pred %p;\n"
         "  ld.param.u64 %at, [place];\n" +
         body + "\n}\n";
}

class hostrt_module : public hostrt {
 protected:
  void SetUp() override {
    hostrt::SetUp();
    words_ = reinterpret_cast<std::atomic<std::uint32_t>*>(pinned(4096));
    at_ = reinterpret_cast<std::uint64_t>(words_);
    on_ = stream();
    ASSERT_EQ(load(loaded_, text_of("")), CUDA_SUCCESS);
  }
  void TearDown() override {
    reset();
    unload();
    hostrt::TearDown();
  }
  void unload() {
    if (loaded_ != nullptr) { EXPECT_EQ(driver("cuModuleUnload", loaded_), CUDA_SUCCESS); }
    loaded_ = nullptr;
  }

  static CUresult load(CUmodule& loaded, std::string const& text) {
    return driver("cuModuleLoadData", &loaded, static_cast<void const*>(text.c_str()));
  }
  CUresult find(CUfunction& found, char const* name) {
    return driver("cuModuleGetFunction", &found, loaded_, name);
  }
  static CUresult launch(CUfunction function, unsigned int threads, cudaStream_t on,
                         void** parameters) {
    return driver("cuLaunchKernel", function, 1U, 1U, 1U, threads, 1U, 1U, 0U,
                  static_cast<CUstream>(on), parameters, static_cast<void**>(nullptr));
  }

  /// Launches a kernel whose parameter is the address `at_`.
  void start(std::string const& body) {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);  // a reset leaves the thread without a context
    unload();
    ASSERT_EQ(load(loaded_, text_of(body)), CUDA_SUCCESS);
    CUfunction found{};
    ASSERT_EQ(find(found, "test"), CUDA_SUCCESS);
    std::array<void*, 1> parameters{&at_};
    ASSERT_EQ(launch(found, 1, on_, parameters.data()), CUDA_SUCCESS);
  }
  void expect_end(char const* body, cudaError_t code) {
    start(body);
    EXPECT_EQ(cudaStreamSynchronize(on_), code) << body;
    reset();
  }

  CUmodule loaded_{};
  std::atomic<std::uint32_t>* words_ = nullptr;  ///< 4096 bytes
  std::uint64_t at_ = 0;
  cudaStream_t on_ = nullptr;
};

TEST_F(hostrt_module, other_text_and_threads_without_a_context_are_refused) {
  CUmodule other{};
  EXPECT_EQ(load(other, "// none"), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(load(other, ".version 6.0\n.func test()"), CUDA_ERROR_INVALID_PTX);
  for (auto const* const unknown : {"bar.sync 0;", "mov.u64 %a, %c;", "mov.u64 %a, %laneid;",
                                    "ld.param.u64 %a, [to];", "bra away;", "add.u64 %a, %at, 1x;",
                                    "add.u64 %a, %at;", ".reg .u32 %a;", "ret", ".entry"}) {
    EXPECT_EQ(load(other, text_of(unknown)), CUDA_ERROR_INVALID_PTX) << unknown;
  }
  EXPECT_EQ(driver("cuModuleLoadData", &other, static_cast<void const*>(nullptr)),
            CUDA_ERROR_INVALID_VALUE);
  auto elsewhere = std::async(std::launch::async, [&] { return load(other, text_of("")); });
  EXPECT_EQ(elsewhere.get(), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(hostrt_module, has_the_entries_of_its_text_until_it_is_unloaded) {
  CUfunction found{};
  EXPECT_EQ(find(found, "chase"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(find(found, "test"), CUDA_SUCCESS);
  EXPECT_EQ(made().back().kind, "module");
  auto const kept = loaded_;
  unload();
  EXPECT_NE(made().back().kind, "module");
  EXPECT_EQ(driver("cuModuleUnload", kept), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver("cuModuleGetFunction", &found, kept, "test"), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(hostrt_module, a_launch_needs_a_function_of_the_streams_device) {
  set_device_count(2);
  CUfunction found{};
  ASSERT_EQ(find(found, "test"), CUDA_SUCCESS);
  std::array<void*, 1> parameters{&at_};
  EXPECT_EQ(launch(found, 1, stream(), parameters.data()), CUDA_SUCCESS);
  EXPECT_EQ(launch(found, 0, stream(), parameters.data()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(found, 1025, stream(), parameters.data()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(found, 1, stream(), nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(nullptr, 1, stream(), parameters.data()), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(launch(found, 1, stream(), parameters.data()), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(hostrt_module, a_plain_load_may_be_older_than_memory) {
  words_[0] = 1;
  start(R"(
    ld.global.u32 %v, [%at];
    st.volatile.global.u32 [%at+4], 1;
  wait:
    ld.volatile.global.u32 %w, [%at+8];
    setp.eq.u32 %p, %w, 0;
    @%p bra wait;
    ld.global.u32 %v, [%at];
    st.global.u32 [%at+12], %v;)");
  while (words_[1] == 0) std::this_thread::yield();
  words_[0] = 5;
  words_[2] = 1;
  ASSERT_EQ(cudaStreamSynchronize(on_), cudaSuccess);
  EXPECT_EQ(words_[3], 1U);
}

TEST_F(hostrt_module, a_kernel_whose_access_is_not_possible_loses_the_device) {
  expect_end("ld.global.u64 %a, [%at+4088]; st.global.u64 [%at+4088], %a;", cudaSuccess);
  expect_end("ld.global.cg.v4.b32 {%x0, %x1, %x2, %x3}, [%at+8];", cudaErrorMisalignedAddress);
  expect_end("st.global.u64 [%at+4], %a;", cudaErrorMisalignedAddress);
  expect_end("st.global.u32 [%at+4096], %v;", cudaErrorIllegalAddress);
  expect_end("ld.global.u64 %a, [%at]; sub.u64 %at, %at, 8; ld.global.u64 %a, [%at];",
             cudaErrorIllegalAddress);
  std::uint64_t pageable = 0;
  at_ = reinterpret_cast<std::uint64_t>(&pageable);
  expect_end("st.global.u64 [%at], 7;", cudaErrorIllegalAddress);
  set_attribute(cudaDevAttrPageableMemoryAccess, 1);
  expect_end("st.global.u64 [%at], 7;", cudaSuccess);
  EXPECT_EQ(pageable, 7U);
  set_device_count(2);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  at_ = reinterpret_cast<std::uint64_t>(device(8));
  expect_end("st.global.u64 [%at], 7;", cudaErrorIllegalAddress);
}

/// Device memory is protected at its own address.
TEST_F(hostrt_module, a_kernel_loads_and_stores_memory_of_either_side) {
  auto* const there = device(64);
  auto* const seen = reinterpret_cast<std::uint64_t*>(host_view(there));
  seen[1] = reinterpret_cast<std::uint64_t>(there + 16);
  seen[2] = reinterpret_cast<std::uint64_t>(words_);
  at_ = reinterpret_cast<std::uint64_t>(there);
  words_[0] = 9;
  expect_end(R"(
    ld.global.u64 %a, [%at+8];
    ld.volatile.global.u64 %a, [%a];
    ld.global.u32 %v, [%a];
    st.global.u32 [%at+56], %v;
    st.volatile.global.u32 [%a+4], %v;
    st.global.u32 [%at+60], %v;)",
             cudaSuccess);
  EXPECT_EQ(seen[7], 0x900000009U);
  EXPECT_EQ(words_[1], 9U);
}

TEST_F(hostrt_module, a_kernel_ends_when_the_device_is_lost) {
  start("st.volatile.global.u32 [%at], 1; forever: bra forever;");
  while (words_[0] == 0) std::this_thread::yield();
  lose_device(cudaErrorLaunchFailure);
  EXPECT_EQ(cudaStreamSynchronize(on_), cudaErrorLaunchFailure);
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
