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
         "  .reg .u64 %at, %a, %b, %c;\n  .reg .b16 %h;\n  .reg .u32 %v, %w;\n  .reg .b32 %x<4>;\n "
         " .reg .pred %p;\n"
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
  for (auto const* const unknown : {"bar.sync 0;", "mov.u64 %a, %d;", "mov.u64 %a, %laneid;",
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

/// What an instruction makes of the 64 bits `a` and `b`, of which it takes as many as it has.
TEST_F(hostrt_module, computes_as_a_device_does) {
  struct computed {
    char const* text;
    std::uint64_t a;
    std::uint64_t b;
    std::uint64_t result;
  };
  constexpr std::uint64_t one = 0x3ff0000000000000;        // 1.0
  constexpr std::uint64_t denormal = 0x36a0000000000000;   // 2 to the power of -149
  constexpr std::uint64_t large = 0x8000000000000401;      // between two float64
  constexpr std::uint64_t half_step = 0x3ff0020000000001;  // float32 would round it to a middle
  auto* const at = reinterpret_cast<std::uint64_t*>(at_);
  for (auto const& [text, a, b, result] : std::initializer_list<computed>{
           {"and.b32 %c, %a, %b", 0xf0f0, 0xff00, 0xf000},
           {"and.b64 %c, %a, %b", large, ~0ULL >> 1U, 0x401},
           {"or.b32 %c, %a, %b", 0xf0f0, 0xff00, 0xfff0},
           {"shl.b32 %c, %a, 4", 0xf0000001, 0, 0x10},
           {"shl.b32 %c, %a, 32", 1, 0, 0},
           {"shr.u32 %c, %a, 4", 0xf0000001, 0, 0xf000000},
           {"shr.u32 %c, %a, 32", 0xf0000001, 0, 0},
           {"shr.u64 %c, %a, 60", large, 0, 8},
           {"shr.u64 %c, %a, 64", large, 0, 0},
           {"shr.s32 %c, %a, 4", 0xf0000001, 0, 0xff000000},
           {"shr.s32 %c, %a, 99", 0xf0000001, 0, 0xffffffff},
           {"setp.ne.u64 %c, %a, %b", 1ULL << 32U, 0, 1},
           {"setp.gt.u32 %c, %a, %b", 2, 2, 0},
           {"setp.gt.u32 %c, %a, %b", 3, 2, 1},
           {"mov.b32 %c, %a", 5, 0, 5},
           {"mov.b64 %c, %a", large, 0, large},
           {"cvt.u16.u32 %h, %a; cvt.u32.u16 %c, %h", 0x12345, 0, 0x2345},
           {"cvt.u32.u64 %c, %a", large, 0, 0x401},
           {"cvt.s64.s32 %c, %a", 0x80000000, 0, 0xffffffff80000000},
           {"cvt.rn.f32.u32 %c, %a", 0xffffffff, 0, 0x4f800000},
           {"cvt.rn.f32.s32 %c, %a", 0xffffffff, 0, 0xbf800000},
           {"cvt.rn.f32.u64 %c, %a", 0x8000008000000001, 0, 0x5f000001},
           {"cvt.rn.f32.s64 %c, %a", ~0ULL, 0, 0xbf800000},
           {"cvt.rn.f32.f64 %c, %a", one + (1ULL << 28U), 0, 0x3f800000},
           {"cvt.rn.f32.f64 %c, %a", one + (1ULL << 28U) + 1, 0, 0x3f800001},
           {"cvt.rn.f32.f64 %c, %a", denormal, 0, 1},
           {"cvt.rn.f32.f64 %c, %a", ~0ULL, 0, 0x7fffffff},
           {"cvt.rn.f64.u32 %c, %a", 0xffffffff, 0, 0x41efffffffe00000},
           {"cvt.rn.f64.s32 %c, %a", 0xffffffff, 0, 0xbff0000000000000},
           {"cvt.rn.f64.u64 %c, %a", large, 0, 0x43e0000000000001},
           {"cvt.rn.f64.s64 %c, %a", ~0ULL, 0, 0xbff0000000000000},
           {"cvt.f64.f32 %c, %a", 1, 0, denormal},
           {"cvt.f32.f16 %c, %a", 0x0001, 0, 0x33800000},
           {"cvt.f32.f16 %c, %a", 0xbc00, 0, 0xbf800000},
           {"cvt.f32.f16 %c, %a", 0x7bff, 0, 0x477fe000},
           {"cvt.f32.f16 %c, %a", 0xfc00, 0, 0xff800000},
           {"cvt.f32.f16 %c, %a", 0x7c01, 0, 0x7fffffff},
           {"cvt.rn.f16.f32 %c, %a", 0x477fefff, 0, 0x7bff},
           {"cvt.rn.f16.f32 %c, %a", 0xc77ff000, 0, 0xfc00},
           {"cvt.rn.f16.f32 %c, %a", 0x33000000, 0, 0},
           {"cvt.rn.f16.f32 %c, %a", 0x33000001, 0, 1},
           {"cvt.rn.f16.f32 %c, %a", 0x387fffff, 0, 0x400},
           {"cvt.rn.f16.f32 %c, %a", 0x7f800001, 0, 0x7fff},
           {"cvt.rn.f16.f64 %c, %a", half_step, 0, 0x3c01},
           {"cvt.rn.f16.f64 %c, %a", half_step - 1, 0, 0x3c00},
           {"cvt.rn.f16.f64 %c, %a", 1ULL << 63U, 0, 0x8000}}) {
    at[0] = a;
    at[1] = b;
    auto const body = std::string{"ld.global.u64 %a, [%at]; ld.global.u64 %b, [%at+8]; "} + text +
                      "; st.global.u64 [%at+16], %c;";
    expect_end(body.c_str(), cudaSuccess);
    EXPECT_EQ(at[2], result) << text << " of " << a;
  }
}

TEST_F(hostrt_module, loads_and_stores_values_of_one_to_eight_bytes) {
  auto* const at = reinterpret_cast<std::uint64_t*>(at_);
  at[0] = 0x8877665544332211;
  at[1] = 0x1234567890abcdef;
  std::fill_n(at + 2, 8, 0);
  expect_end(R"(
    ld.global.cg.u8 %v, [%at+1];
    st.global.cg.u8 [%at+17], %v;
    ld.global.cg.u16 %v, [%at+6];
    st.global.cg.u16 [%at+22], %v;
    ld.global.cg.b32 %x0, [%at+4];
    st.global.cg.b32 [%at+28], %x0;
    ld.global.cg.b64 %a, [%at];
    st.global.cg.b64 [%at+32], %a;
    ld.global.cg.v2.b32 {%x0, %x1}, [%at];
    st.global.cg.v2.b32 [%at+40], {%x1, %x0};
    ld.global.cg.v2.b64 {%a, %b}, [%at];
    st.global.cg.v2.b64 [%at+48], {%b, %a};)",
             cudaSuccess);
  EXPECT_EQ(at[2], 0x8877000000002200U);
  EXPECT_EQ(at[3], 0x8877665500000000U);
  EXPECT_EQ(at[4], at[0]);
  EXPECT_EQ(at[5], 0x4433221188776655U);
  EXPECT_EQ(at[6], at[1]);
  EXPECT_EQ(at[7], at[0]);
  for (auto const* const misaligned :
       {"ld.global.cg.u16 %v, [%at+1];", "st.global.cg.b32 [%at+2], %v;",
        "ld.global.cg.b64 %a, [%at+4];", "st.global.cg.v2.b32 [%at+4], {%v, %w};",
        "ld.global.cg.v2.b64 {%a, %b}, [%at+8];"}) {
    expect_end(misaligned, cudaErrorMisalignedAddress);
  }
  expect_end("st.global.cg.u8 [%at+4095], %v;", cudaSuccess);
  expect_end("st.global.cg.u8 [%at+4096], %v;", cudaErrorIllegalAddress);
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
