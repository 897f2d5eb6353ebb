#include "trace/parse.hpp"

#include "hostrt/injection.hpp"
#include "trace_support.hpp"

namespace pyxfer::trace::tests {
namespace {

constexpr std::uint32_t newest = 28;

class trace_parse : public ::testing::Test {
 protected:
  template <typename Raw>
  record parsed(Raw const& raw, std::uint32_t version = newest) {
    auto const found = parser{version, host_functions()}.parse(
        reinterpret_cast<cupti::activity const&>(raw), names_);
    EXPECT_TRUE(found);
    return found.value_or(record{});
  }

  [[nodiscard]] std::string name_of(record const& of) { return names_.names().at(of.name); }

  static cupti::copy_activity copy(std::uint8_t way, std::uint8_t source, std::uint8_t target) {
    cupti::copy_activity raw{};
    raw.kind = cupti::activity_kind::copy;
    raw.way = way;
    raw.source = source;
    raw.target = target;
    return raw;
  }

  static std::uint32_t id_of(cupti::domain of, std::string const& wanted) {
    call_names const names{host_functions(), of};
    for (std::uint32_t id = 1; id <= hostrt::all_calls.size(); ++id) {
      if (names.name_of(id) == wanted) { return id; }
    }
    return 0;
  }

  name_table names_;
};

TEST_F(trace_parse, reads_a_copy) {
  auto raw = copy(1, 2, 3);
  raw.flags = cupti::asynchronous;
  raw.bytes = std::uint64_t{5} << 32U;
  raw.start = 1000;
  raw.end = 2500;
  raw.device = 1;
  raw.context = 2;
  raw.stream = 13;
  raw.correlation = 99;
  raw.copies = 8;
  auto const found = parsed(raw);
  EXPECT_EQ(found.kind, record_kind::copy);
  EXPECT_EQ(found.way, copy_way::h2d);
  EXPECT_EQ(found.source, memory_side::pinned);
  EXPECT_EQ(found.target, memory_side::device);
  EXPECT_EQ(found.flags, flag::asynchronous);
  EXPECT_EQ(found.nbytes, std::uint64_t{5} << 32U);
  EXPECT_EQ(found.start_ns, 1000);
  EXPECT_EQ(found.end_ns, 2500);
  EXPECT_EQ(found.device, 1U);
  EXPECT_EQ(found.context, 2U);
  EXPECT_EQ(found.stream, 13U);
  EXPECT_EQ(found.correlation, 99U);
  EXPECT_EQ(found.copies, 8U);
}

TEST_F(trace_parse, counts_one_copy_if_the_library_does_not_count) {
  auto raw = copy(2, 3, 1);
  raw.copies = 0x1234567;  // in such a library the next record begins here
  EXPECT_EQ(parsed(raw, 24).copies, 1U);
  raw.copies = 0;
  EXPECT_EQ(parsed(raw).copies, 1U);
}

TEST_F(trace_parse, treats_cuda_arrays_as_device_memory) {
  EXPECT_EQ(parsed(copy(3, 1, 4)).way, copy_way::h2d);
  EXPECT_EQ(parsed(copy(4, 4, 1)).way, copy_way::d2h);
  EXPECT_EQ(parsed(copy(7, 3, 4)).way, copy_way::d2d);
  EXPECT_EQ(parsed(copy(7, 3, 4)).target, memory_side::array);
}

TEST_F(trace_parse, reports_unknown_values_as_unknown) {
  auto const found = parsed(copy(200, 77, 6));
  EXPECT_EQ(found.way, copy_way::other);
  EXPECT_EQ(found.source, memory_side::unknown);
  EXPECT_EQ(found.target, memory_side::device);  // statically allocated
}

TEST_F(trace_parse, reads_a_copy_between_devices) {
  cupti::peer_copy_activity raw{};
  raw.kind = cupti::activity_kind::peer_copy;
  raw.way = 10;
  raw.bytes = 7;
  raw.correlation = 42;
  auto const found = parsed(raw);
  EXPECT_EQ(found.kind, record_kind::copy);
  EXPECT_EQ(found.way, copy_way::p2p);
  EXPECT_EQ(found.nbytes, 7U);
  EXPECT_EQ(found.correlation, 42U);
}

TEST_F(trace_parse, reads_a_set) {
  cupti::set_activity raw{};
  raw.kind = cupti::activity_kind::set;
  raw.bytes = 4096;
  raw.memory = 3;
  raw.flags = cupti::asynchronous;
  auto const found = parsed(raw);
  EXPECT_EQ(found.kind, record_kind::set);
  EXPECT_EQ(found.nbytes, 4096U);
  EXPECT_EQ(found.target, memory_side::device);
  EXPECT_EQ(found.flags, flag::asynchronous);
  EXPECT_EQ(found.copies, 0U);
}

TEST_F(trace_parse, reads_a_kernel) {
  cupti::kernel_activity raw{};
  raw.kind = cupti::activity_kind::kernel;
  raw.start = 10;
  raw.end = 30;
  raw.stream = 7;
  raw.correlation = 3;
  raw.name = "_Z3addPf";
  auto const found = parsed(raw);
  EXPECT_EQ(found.kind, record_kind::kernel);
  EXPECT_EQ(name_of(found), "add(float*)");
  EXPECT_EQ(found.end_ns - found.start_ns, 20);
  EXPECT_EQ(found.stream, 7U);
}

TEST_F(trace_parse, reads_a_call_of_the_runtime) {
  cupti::call_activity raw{};
  raw.kind = cupti::activity_kind::runtime_call;
  raw.callback = id_of(cupti::domain::runtime, "cudaMemcpyAsync");
  raw.start = 5;
  raw.end = 9;
  raw.thread = 1234;
  raw.correlation = 17;
  raw.result = 2;
  auto const found = parsed(raw);
  EXPECT_EQ(found.kind, record_kind::call);
  EXPECT_EQ(name_of(found), "cudaMemcpyAsync");
  EXPECT_EQ(found.flags, flag::runtime);
  EXPECT_EQ(found.thread, 1234U);
  EXPECT_EQ(found.correlation, 17U);
  EXPECT_EQ(found.result, 2);
}

TEST_F(trace_parse, reads_a_call_of_the_driver) {
  cupti::call_activity raw{};
  raw.kind = cupti::activity_kind::driver_call;
  raw.callback = id_of(cupti::domain::driver, "cuCtxSynchronize");
  auto const found = parsed(raw);
  EXPECT_EQ(name_of(found), "cuCtxSynchronize");
  EXPECT_EQ(found.flags, 0U);
}

TEST_F(trace_parse, leaves_out_an_unwanted_call) {
  cupti::call_activity raw{};
  raw.kind = cupti::activity_kind::runtime_call;
  raw.callback = 0;
  auto const found =
      parser{newest, host_functions()}.parse(reinterpret_cast<cupti::activity const&>(raw), names_);
  EXPECT_FALSE(found);
}

TEST_F(trace_parse, reads_an_allocation_and_its_release) {
  cupti::memory_activity raw{};
  raw.kind = cupti::activity_kind::memory;
  raw.operation = cupti::memory_allocated;
  raw.memory = 2;
  raw.bytes = 12345;
  raw.timestamp = 77;
  raw.correlation = 5;
  auto const made = parsed(raw);
  EXPECT_EQ(made.kind, record_kind::allocation);
  EXPECT_EQ(made.target, memory_side::pinned);
  EXPECT_EQ(made.nbytes, 12345U);
  EXPECT_EQ(made.start_ns, 77);
  EXPECT_EQ(made.end_ns, 77);
  EXPECT_EQ(made.correlation, 5U);
  EXPECT_EQ(made.flags, 0U);
  raw.operation = cupti::memory_released;
  EXPECT_EQ(parsed(raw).flags, flag::freed);
}

TEST_F(trace_parse, reads_both_ends_of_a_range) {
  cupti::marker_activity raw{};
  raw.kind = cupti::activity_kind::marker;
  raw.flags = cupti::marker_begin;
  raw.timestamp = 100;
  raw.id = 6;
  raw.object_kind = cupti::object_is_thread;
  raw.object.thread = 4321;
  raw.name = "decode";
  auto const begin = parsed(raw);
  EXPECT_EQ(begin.kind, record_kind::mark);
  EXPECT_EQ(begin.flags, flag::begin);
  EXPECT_EQ(begin.correlation, 6U);
  EXPECT_EQ(begin.thread, 4321U);
  EXPECT_EQ(name_of(begin), "decode");
  raw.flags = cupti::marker_end;
  raw.name = nullptr;
  auto const end = parsed(raw);
  EXPECT_EQ(end.flags, flag::end);
  EXPECT_EQ(end.correlation, 6U);
  EXPECT_EQ(end.name, 0U);
}

TEST_F(trace_parse, reads_an_instant_as_an_empty_range) {
  cupti::marker_activity raw{};
  raw.kind = cupti::activity_kind::marker;
  raw.flags = cupti::marker_instant;
  EXPECT_EQ(parsed(raw).flags, flag::begin | flag::end);
}

TEST_F(trace_parse, reads_an_overhead_and_its_kind) {
  cupti::overhead_activity raw{};
  raw.kind = cupti::activity_kind::overhead;
  raw.overhead = 1U << 16U;
  raw.object_kind = cupti::object_is_thread;
  raw.object.thread = 8;
  raw.start = 1;
  raw.end = 4;
  auto const found = parsed(raw);
  EXPECT_EQ(found.kind, record_kind::overhead);
  EXPECT_EQ(name_of(found), "buffer flush");
  EXPECT_EQ(found.thread, 8U);
  EXPECT_EQ(found.end_ns - found.start_ns, 3);
  raw.overhead = 1;
  raw.object_kind = 3;
  EXPECT_EQ(name_of(parsed(raw)), "compiler");
  EXPECT_EQ(parsed(raw).thread, 0U);
  raw.overhead = 99U << 16U;
  EXPECT_EQ(name_of(parsed(raw)), "unknown");
}

TEST_F(trace_parse, leaves_out_other_kinds) {
  cupti::activity const raw{static_cast<cupti::activity_kind>(38)};
  EXPECT_FALSE((parser{newest, host_functions()}.parse(raw, names_)));
  EXPECT_FALSE(kind_of(raw.kind));
}

TEST(trace_kinds, have_words) {
  EXPECT_EQ(kinds_of({"copies"}), std::set{record_kind::copy});
  EXPECT_EQ(kinds_of({"overhead", "calls"}), (std::set{record_kind::call, record_kind::overhead}));
  for (auto const* const word : kind_words) {
    EXPECT_STREQ(word_of(*kinds_of({word}).begin()), word);
  }
}

TEST(trace_kinds, that_are_unknown_are_refused_with_a_list_of_the_known) {
  EXPECT_EQ(text_of<std::invalid_argument>([] { static_cast<void>(kinds_of({"copys"})); }),
            "unknown kind \"copys\"; known are copies, sets, kernels, calls, allocations, marks, "
            "overhead");
}

TEST(trace_kinds, must_not_be_empty) {
  EXPECT_EQ(text_of<std::invalid_argument>([] { static_cast<void>(kinds_of({})); }),
            "nothing to trace: name at least one kind");
}

TEST(trace_names, gives_every_name_one_number) {
  name_table table;
  auto const first = table.number_of("cudaMemcpy");
  auto const second = table.number_of("cudaFree");
  EXPECT_NE(first, second);
  EXPECT_EQ(table.number_of("cudaMemcpy"), first);
  EXPECT_EQ(table.names(), (std::vector<std::string>{"", "cudaMemcpy", "cudaFree"}));
}

TEST(trace_names, gives_number_0_to_no_name) {
  name_table table;
  EXPECT_EQ(table.number_of(""), 0U);
  EXPECT_EQ(table.number_of_kernel(nullptr), 0U);
}

TEST(trace_names, demangles_the_name_of_a_kernel) {
  name_table table;
  auto const number = table.number_of_kernel("_Z9transposePfi");
  EXPECT_EQ(table.names().at(number), "transpose(float*, int)");
  EXPECT_EQ(table.number_of_kernel("_Z9transposePfi"), number);
}

TEST(trace_names, keeps_a_kernel_name_that_is_not_mangled) {
  name_table table;
  EXPECT_EQ(table.names().at(table.number_of_kernel("triton_poi_fused_add_0")),
            "triton_poi_fused_add_0");
}

TEST(trace_names, keeps_a_name_that_its_owner_has_freed) {
  name_table table;
  std::string gone = "a name that does not fit into a string itself";
  auto const number = table.number_of(gone);
  gone.assign(gone.size(), 'x');
  EXPECT_EQ(table.number_of("a name that does not fit into a string itself"), number);
}

TEST(trace_names, are_bounded_in_number) {
  name_table table;
  for (std::size_t i = 0; i < name_table::most_names + 10; ++i) {
    static_cast<void>(table.number_of(std::to_string(i)));
  }
  EXPECT_EQ(table.names().size(), name_table::most_names);
  EXPECT_EQ(table.names().at(table.number_of("another")), "(too many names)");
  EXPECT_EQ(table.names().at(table.number_of("7")), "7");
}

TEST(trace_names, are_bounded_in_length) {
  name_table table;
  std::string const vast(name_table::most_bytes / 4, 'x');
  EXPECT_EQ(table.names().at(table.number_of(vast)), vast);
  EXPECT_EQ(table.names().at(table.number_of(vast + "y")), "(too many names)");
}

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
