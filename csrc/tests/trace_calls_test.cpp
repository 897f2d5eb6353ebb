#include "trace/parse.hpp"

#include "trace_support.hpp"

namespace pyxfer::trace::tests {
namespace {

TEST(trace_calls, are_named_without_version_and_default_stream) {
  EXPECT_EQ(plain_name("cudaMemcpyAsync_v3020"), "cudaMemcpyAsync");
  EXPECT_EQ(plain_name("cudaMemcpyAsync_ptsz_v7000"), "cudaMemcpyAsync");
  EXPECT_EQ(plain_name("cudaMemcpy_ptds_v7000"), "cudaMemcpy");
  EXPECT_EQ(plain_name("cudaEventElapsedTime_v2_v12080"), "cudaEventElapsedTime");
  EXPECT_EQ(plain_name("cuMemcpyHtoDAsync_v2_ptsz"), "cuMemcpyHtoDAsync");
  EXPECT_EQ(plain_name("cuMemAlloc_v2"), "cuMemAlloc");
  EXPECT_EQ(plain_name("cuMemsetD8"), "cuMemsetD8");
  EXPECT_EQ(plain_name("cuCtxSynchronize"), "cuCtxSynchronize");
  EXPECT_EQ(plain_name(""), "");
}

TEST(trace_calls, that_copy_wait_or_allocate_are_wanted) {
  for (auto const* const name :
       {"cudaMemcpy2DAsync", "cuMemcpyBatchAsync", "cudaMemsetAsync", "cuMemsetD8",
        "cudaDeviceSynchronize", "cuEventSynchronize", "cudaMallocAsync", "cudaMallocHost",
        "cuMemAllocHost", "cudaFreeHost", "cuMemFree", "cudaHostRegister", "cuMemHostUnregister",
        "cudaLaunchHostFunc", "cudaGraphLaunch"}) {
    EXPECT_TRUE(is_wanted(name)) << name;
  }
}

TEST(trace_calls, that_launch_or_query_are_not_wanted) {
  for (auto const* const name : {"cudaLaunchKernel", "cuLaunchKernelEx", "cudaGetLastError",
                                 "cudaStreamWaitEvent", "cudaEventRecord", "INVALID", ""}) {
    EXPECT_FALSE(is_wanted(name)) << name;
  }
}

std::uint32_t id_of(cupti::functions const& call, std::string_view wanted) {
  char const* name = nullptr;
  for (std::uint32_t id = 1;
       call.get_callback_name(cupti::domain::runtime, id, &name) == cupti::result::success; ++id) {
    if (plain_name(name) == wanted) { return id; }
  }
  return 0;
}

TEST(trace_calls, have_the_names_of_the_library) {
  auto const call = host_functions();
  call_names const names{call, cupti::domain::runtime};
  auto const others = names.unwanted_ids();
  auto const is_other = [&](std::uint32_t id) {
    return std::find(others.begin(), others.end(), id) != others.end();
  };
  EXPECT_EQ(names.name_of(id_of(call, "cudaMemcpyAsync")), "cudaMemcpyAsync");
  EXPECT_FALSE(is_other(id_of(call, "cudaMemcpyAsync")));
  EXPECT_TRUE(is_other(id_of(call, "cudaStreamQuery")));
  EXPECT_FALSE(is_other(0));
}

TEST(trace_calls, without_a_name_in_the_library_have_none) {
  call_names const names{host_functions(), cupti::domain::driver};
  EXPECT_EQ(names.name_of(0), "");
  EXPECT_EQ(names.name_of(100'000), "");
}

TEST(trace_calls, are_empty_if_the_library_does_not_report_names) {
  auto* const refuse =
      +[](cupti::domain, std::uint32_t, char const**) { return cupti::result::unknown; };
  call_names const names{host_functions({{"cuptiGetCallbackName", address_of(refuse)}}),
                         cupti::domain::runtime};
  EXPECT_TRUE(names.unwanted_ids().empty());
}

}  // namespace
}  // namespace pyxfer::trace::tests
