#include "hostrt/ptx.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "hostrt_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

/// A kernel `test` with one parameter, `at`, which is in %at.
std::string text_of(std::string const& body) {
  return ".version 6.0\n.target sm_50\n.address_size 64\n"
         ".visible .entry test(.param .u64 at)\n{\n"
         "  .reg .u64 %at, %a, %b;\n  .reg .u32 %v, %w;\n  .reg .b32 %x<4>;\n  .reg .pred %p;\n"
         "  ld.param.u64 %at, [at];  // the parameter\n" +
         body + "}\n";
}

class hostrt_ptx_run : public hostrt {
 protected:
  void SetUp() override {
    hostrt::SetUp();
    words_ = reinterpret_cast<std::uint32_t*>(pinned(4096));
    at_ = reinterpret_cast<std::uint64_t>(words_);
    on_ = stream();
  }

  void launch(std::string const& body, unsigned int blocks = 1, unsigned int threads = 1) {
    CUmodule loaded{};
    CUfunction found{};
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);  // a reset leaves the thread without a context
    ASSERT_EQ(driver("cuModuleLoadData", &loaded, static_cast<void const*>(text_of(body).c_str())),
              CUDA_SUCCESS);
    ASSERT_EQ(driver("cuModuleGetFunction", &found, loaded, "test"), CUDA_SUCCESS);
    std::array<void*, 1> parameters{&at_};
    EXPECT_EQ(driver("cuLaunchKernel", found, blocks, 1U, 1U, threads, 1U, 1U, 0U,
                     static_cast<CUstream>(on_), parameters.data(), static_cast<void**>(nullptr)),
              CUDA_SUCCESS);
    // Like a driver, the runtime needs neither the text nor the module after the launch.
    EXPECT_EQ(driver("cuModuleUnload", loaded), CUDA_SUCCESS);
  }
  cudaError_t run(std::string const& body, unsigned int blocks = 1, unsigned int threads = 1) {
    launch(body, blocks, threads);
    return cudaStreamSynchronize(on_);
  }

  std::atomic<std::uint32_t>& word(std::size_t index) const {
    return reinterpret_cast<std::atomic<std::uint32_t>*>(words_)[index];
  }

  std::uint32_t* words_ = nullptr;
  std::uint64_t at_ = 0;
  cudaStream_t on_ = nullptr;
};

TEST(hostrt_ptx_text, has_entries_with_parameters) {
  auto const found = read_ptx(text_of("ret;"));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].name, "test");
  EXPECT_EQ(found[0].parameter_bytes, (std::vector<std::uint8_t>{8}));
}

TEST(hostrt_ptx_text, of_which_a_part_is_unknown_is_refused) {
  for (auto const* const body : {
           "bar.sync 0;",                     // an instruction
           "mov.u64 %a, %c;",                 // a register
           "mov.u64 %a, %laneid;",            // a special register
           "ld.param.u64 %a, [to];",          // a parameter
           "bra away;",                       // a label
           "add.u64 %a, %v, 1;",              // a register of another size
           "setp.eq.u32 %v, %w, 0;",          // no predicate
           "ld.global.u64 %a, %at;",          // no address
           "ld.global.cg.v4.b32 %v, [%at];",  // too few values
           "add.u64 %a, %at, 1x;",            // a number
           "add.u64 %a, %at;",                // a source too few
           ".reg .u32 %a;",                   // declared twice
           "ret",                             // no end
       }) {
    EXPECT_THROW(static_cast<void>(read_ptx(text_of(body))), invalid_ptx) << body;
  }
  EXPECT_THROW(static_cast<void>(read_ptx(".version 6.0 .visible .entry test(")), invalid_ptx);
}

TEST_F(hostrt_ptx_run, knows_its_threads_and_puts_blocks_on_multiprocessors) {
  ASSERT_EQ(run(R"(
    mov.u32 %v, %ctaid.x;
    mov.u32 %w, %ntid.x;
    mul.wide.u32 %a, %v, %w;
    mov.u32 %v, %tid.x;
    cvt.u64.u32 %b, %v;
    add.u64 %a, %a, %b;
    shl.b64 %a, %a, 4;
    add.u64 %at, %at, %a;
    st.global.u32 [%at], %v;
    mov.u32 %v, %ctaid.x;
    st.global.u32 [%at+4], %v;
    mov.u32 %v, %nctaid.x;
    st.global.u32 [%at+8], %v;
    mov.u32 %v, %smid;
    st.global.u32 [%at+12], %v;
  )",
                5, 3),
            cudaSuccess);
  for (std::uint32_t i = 0; i < 15; ++i) {
    std::array<std::uint32_t, 4> const expected{i % 3, i / 3, 5, i / 3 % 4};
    EXPECT_EQ(std::memcmp(words_ + 4 * i, expected.data(), sizeof expected), 0) << i;
  }
  EXPECT_EQ(words_[60 + 2], 0U);
}

TEST_F(hostrt_ptx_run, computes_with_the_sizes_of_its_instructions) {
  ASSERT_EQ(run(R"(
    mov.u32 %v, 0;
    sub.u32 %v, %v, 1;
    st.global.u32 [%at], %v;
    mul.wide.u32 %a, %v, %v;
    st.global.u64 [%at+8], %a;
    mul.lo.u64 %a, %a, %a;
    sub.u64 %a, %a, 2;
    st.global.u64 [%at+16], %a;
    setp.lt.u64 %p, %a, 0x10;
    @!%p st.global.u32 [%at+24], 7;
    @%p st.global.u32 [%at+28], 7;
  )"),
            cudaSuccess);
  std::array<std::uint64_t, 4> found{};
  std::memcpy(found.data(), words_, sizeof found);
  constexpr std::uint64_t most = 0xffffffff;
  EXPECT_EQ(found[0], most);
  EXPECT_EQ(found[1], most * most);
  EXPECT_EQ(found[2], most * most * most * most - 2);
  EXPECT_EQ(found[3], 7U);
}

TEST_F(hostrt_ptx_run, a_plain_load_may_be_older_than_memory) {
  launch(R"(
    ld.global.u32 %v, [%at];
    st.volatile.global.u32 [%at+4], 1;
  wait:
    ld.volatile.global.u32 %w, [%at+8];
    setp.eq.u32 %p, %w, 0;
    @%p bra wait;
    ld.global.u32 %v, [%at];
    ld.volatile.global.u32 %w, [%at];
    st.global.u32 [%at+12], %v;
    st.global.u32 [%at+16], %w;
  )");
  while (word(1) == 0) std::this_thread::yield();
  word(0) = 5;
  word(2) = 1;
  ASSERT_EQ(cudaStreamSynchronize(on_), cudaSuccess);
  EXPECT_EQ(words_[3], 0U);
  EXPECT_EQ(words_[4], 5U);
}

TEST_F(hostrt_ptx_run, its_clocks_count_instructions) {
  ASSERT_EQ(run(R"(
    mov.u64 %a, %globaltimer;
    mov.u64 %b, %clock64;
    st.global.u64 [%at], %a;
    st.global.u64 [%at+8], %b;
    mov.u64 %a, %globaltimer;
    mov.u64 %b, %clock64;
    st.global.u64 [%at+16], %a;
    st.global.u64 [%at+24], %b;
  )"),
            cudaSuccess);
  std::array<std::uint64_t, 4> found{};
  std::memcpy(found.data(), words_, sizeof found);
  EXPECT_EQ(found[2] - found[0], 4U);
  EXPECT_EQ(found[3] - found[1], 2U * 4U);
}

TEST_F(hostrt_ptx_run, an_access_that_is_not_aligned_loses_the_device) {
  for (auto const* const body :
       {"ld.global.cg.v4.b32 {%x0, %x1, %x2, %x3}, [%at+8];",
        "st.global.cg.v4.b32 [%at+4], {%x0, %x1, %x2, %x3};", "st.global.u64 [%at+4], %a;",
        "ld.volatile.global.u32 %v, [%at+2];"}) {
    EXPECT_EQ(run(body), cudaErrorMisalignedAddress) << body;
    reset();
  }
}

TEST_F(hostrt_ptx_run, an_access_beyond_the_memory_loses_the_device) {
  EXPECT_EQ(run("ld.global.u64 %a, [%at+4088];\n st.global.u64 [%at+4088], %a;"), cudaSuccess);
  for (auto const* const body :
       {"ld.global.u64 %a, [%at+4096];", "st.global.u32 [%at+4096], %v;", "ld.global.u64 %a, [0];",
        // The memory of the last access is known, and this one begins before it.
        "ld.global.u64 %a, [%at];\n sub.u64 %at, %at, 8;\n ld.global.u64 %a, [%at];"}) {
    EXPECT_EQ(run(body), cudaErrorIllegalAddress) << body;
    reset();
  }
}

TEST_F(hostrt_ptx_run, reaches_the_memory_of_a_peer_with_access) {
  set_device_count(2);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  at_ = reinterpret_cast<std::uint64_t>(device(64));
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  constexpr char const* body = "ld.global.u64 %a, [%at];";
  ASSERT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
  EXPECT_EQ(run(body), cudaSuccess);
  ASSERT_EQ(cudaDeviceDisablePeerAccess(1), cudaSuccess);
  EXPECT_EQ(run(body), cudaErrorIllegalAddress);
}

TEST_F(hostrt_ptx_run, reaches_pageable_memory_through_the_page_tables) {
  alignas(8) std::array<std::uint64_t, 2> pageable{};
  at_ = reinterpret_cast<std::uint64_t>(pageable.data());
  constexpr char const* body = "st.global.u64 [%at+8], 7;";
  EXPECT_EQ(run(body), cudaErrorIllegalAddress);
  reset();
  set_attribute(cudaDevAttrPageableMemoryAccess, 1);
  EXPECT_EQ(run(body), cudaSuccess);
  EXPECT_EQ(pageable[1], 7U);
}

TEST_F(hostrt_ptx_run, ends_when_the_device_is_lost) {
  launch("st.volatile.global.u32 [%at], 1;\nforever:\n bra forever;");
  while (word(0) == 0) std::this_thread::yield();
  lose_device(cudaErrorLaunchFailure);
  EXPECT_EQ(cudaStreamSynchronize(on_), cudaErrorLaunchFailure);
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
