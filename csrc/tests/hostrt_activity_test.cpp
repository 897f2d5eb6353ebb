#include <array>
#include <atomic>
#include <cstring>

#include "activity_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

TEST_F(hostrt_activity, is_not_recorded_when_nothing_is_enabled) {
  ASSERT_EQ(cudaMemcpy(device(64), pinned(64), 64, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_TRUE(copies().empty());
}

TEST_F(hostrt_activity, of_a_copy_has_the_kinds_of_both_memories) {
  enable(activity_kind::copy);
  std::vector<std::byte> pageable(64);
  auto* const there = device(64);
  ASSERT_EQ(cudaMemcpy(there, pinned(64), 64, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(pageable.data(), there, 64, cudaMemcpyDeviceToHost), cudaSuccess);
  auto const found = copies();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].way, 1);
  EXPECT_EQ(found[0].source, 2);
  EXPECT_EQ(found[0].target, 3);
  EXPECT_EQ(found[1].way, 2);
  EXPECT_EQ(found[1].source, 3);
  EXPECT_EQ(found[1].target, 1);
  EXPECT_EQ(found[1].bytes, 64U);
  EXPECT_EQ(found[1].copies, 1U);
}

TEST_F(hostrt_activity, of_a_copy_shows_whether_the_call_was_asynchronous) {
  enable(activity_kind::copy);
  std::vector<std::byte> pageable(64);
  auto* const s = stream();
  auto* const there = device(64);
  ASSERT_EQ(cudaMemcpy(there, pageable.data(), 64, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(there, pageable.data(), 64, cudaMemcpyHostToDevice, s), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  auto const found = copies();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].flags, 0);
  EXPECT_EQ(found[1].flags, cupti::asynchronous);
  EXPECT_EQ(found[1].source, 1);
}

TEST_F(hostrt_activity, of_a_copy_names_its_stream) {
  enable(activity_kind::copy);
  auto* const there = device(64);
  auto* const here = pinned(64);
  ASSERT_EQ(cudaMemcpy(there, here, 64, cudaMemcpyHostToDevice), cudaSuccess);
  for (auto* const on : {stream(), stream()}) {
    ASSERT_EQ(cudaMemcpyAsync(there, here, 64, cudaMemcpyHostToDevice, on), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(on), cudaSuccess);
  }
  auto const found = copies();
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].stream, 7U);
  EXPECT_GE(found[1].stream, 13U);
  EXPECT_NE(found[1].stream, found[2].stream);
}

TEST_F(hostrt_activity, of_a_set_names_its_memory) {
  enable(activity_kind::set);
  ASSERT_EQ(cudaMemset(device(32), 0, 32), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  auto const found = records<cupti::set_activity>(activity_kind::set);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].bytes, 32U);
  EXPECT_EQ(found[0].memory, 3);
  EXPECT_EQ(found[0].flags, 0);
}

TEST_F(hostrt_activity, of_memory_includes_its_allocation_and_its_release) {
  enable(activity_kind::memory);
  void* made = nullptr;
  ASSERT_EQ(cudaHostAlloc(&made, 100, 0), cudaSuccess);
  ASSERT_EQ(cudaFreeHost(made), cudaSuccess);
  auto const found = records<cupti::memory_activity>(activity_kind::memory);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].operation, cupti::memory_allocated);
  EXPECT_EQ(found[1].operation, cupti::memory_released);
  EXPECT_EQ(found[0].memory, 2U);
  EXPECT_EQ(found[1].bytes, 100U);
  EXPECT_EQ(found[0].address, reinterpret_cast<std::uintptr_t>(made));
}

TEST_F(hostrt_activity, of_a_call_that_fails_has_its_code) {
  enable(activity_kind::runtime_call);
  fail("cudaMemGetInfo", 1, cudaErrorMemoryAllocation);
  std::size_t bytes = 0;
  EXPECT_EQ(cudaMemGetInfo(&bytes, &bytes), cudaErrorMemoryAllocation);
  auto const calls = records<cupti::call_activity>(activity_kind::runtime_call);
  EXPECT_EQ(calls.at(0).result, static_cast<std::uint32_t>(cudaErrorMemoryAllocation));
  EXPECT_NE(calls.at(0).thread, 0U);
}

std::uint32_t runtime_call_named(std::string_view wanted) {
  char const* name = nullptr;
  for (std::uint32_t id = 1;
       call_cupti("cuptiGetCallbackName", cupti::domain::runtime, id, &name) == result::success;
       ++id) {
    if (wanted == name) return id;
  }
  return 0;
}

TEST_F(hostrt_activity, leaves_out_a_disabled_call) {
  auto const off = runtime_call_named("cudaDeviceSynchronize_v3020");
  auto* const waited = stream();
  enable(activity_kind::runtime_call);
  ASSERT_EQ(call_cupti("cuptiActivityEnableRuntimeApi", off, std::uint8_t{0}), result::success);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(waited), cudaSuccess);
  auto const calls = records<cupti::call_activity>(activity_kind::runtime_call);
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_NE(calls[0].callback, off);
}

TEST_F(hostrt_activity, does_not_record_a_call_that_is_enabled_alone) {
  auto const chosen = runtime_call_named("cudaDeviceSynchronize_v3020");
  ASSERT_EQ(call_cupti("cuptiActivityEnableRuntimeApi", chosen, std::uint8_t{1}), result::success);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_TRUE(records<cupti::call_activity>(activity_kind::runtime_call).empty());
}

TEST_F(hostrt_activity, includes_all_calls_of_a_kind_that_is_enabled_again) {
  auto const off = runtime_call_named("cudaDeviceSynchronize_v3020");
  enable(activity_kind::runtime_call);
  ASSERT_EQ(call_cupti("cuptiActivityEnableRuntimeApi", off, std::uint8_t{0}), result::success);
  enable(activity_kind::runtime_call);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(records<cupti::call_activity>(activity_kind::runtime_call).size(), 1U);
}

TEST_F(hostrt_activity, of_a_test_kernel_takes_its_time_on_its_stream) {
  enable(activity_kind::kernel);
  auto* const s = stream();
  kernel("_Z3addPf", 0.005, reinterpret_cast<std::uintptr_t>(s));
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  auto const found = records<cupti::kernel_activity>(activity_kind::kernel);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_STREQ(found[0].name, "_Z3addPf");
  EXPECT_GE(found[0].end - found[0].start, 5'000'000U);
  EXPECT_THROW(kernel("add", 0, 0x33), std::invalid_argument);
  EXPECT_THROW(kernel("add", -1, 0), std::invalid_argument);
}

TEST_F(hostrt_activity, of_marks_has_both_ends_of_nested_ranges) {
  enable(activity_kind::marker);
  mark("step", true);
  mark("decode", true);
  mark("decode", false);
  mark("step", false);
  auto const found = records<cupti::marker_activity>(activity_kind::marker);
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0].id, found[3].id);
  EXPECT_EQ(found[1].id, found[2].id);
  EXPECT_NE(found[0].id, found[1].id);
  EXPECT_STREQ(found[1].name, "decode");
  EXPECT_EQ(found[2].name, nullptr);
  EXPECT_THROW(mark("step", false), std::invalid_argument);
}

TEST_F(hostrt_activity, does_not_include_work_that_a_lost_device_dropped) {
  enable(activity_kind::copy);
  auto* const s = stream();
  auto* const there = device(64);
  auto* const here = pinned(64);
  gate closed;
  ASSERT_EQ(closed.close(s), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(there, here, 64, cudaMemcpyHostToDevice, s), cudaSuccess);
  lose_device(719);
  closed.open();
  reset();
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  EXPECT_TRUE(copies().empty());
}

TEST_F(hostrt_activity, counts_records_without_a_buffer) {
  enable(activity_kind::copy);
  ASSERT_EQ(call_cupti("cuptiActivityRegisterCallbacks", lend_none, keep), result::success);
  ASSERT_EQ(cudaMemcpy(device(64), pinned(64), 64, cudaMemcpyHostToDevice), cudaSuccess);
  std::size_t dropped = 0;
  ASSERT_EQ(
      call_cupti("cuptiActivityGetNumDroppedRecords", CUcontext{}, std::uint32_t{0}, &dropped),
      result::success);
  EXPECT_EQ(dropped, 1U);
  EXPECT_TRUE(copies().empty());
}

TEST_F(hostrt_activity, has_a_clock_that_can_be_skewed) {
  auto const at = steady::now();
  auto const true_time = activity_time(at);
  skew_clock(-1'000'000, 0);
  EXPECT_EQ(activity_time(at), true_time - 1'000'000);
  skew_clock(0, 1000);
  auto const later = activity_time(at + std::chrono::seconds{1000});
  EXPECT_NEAR(static_cast<double>(later - true_time), 1e12 + 1e6, 1e5);
  reset();
  EXPECT_EQ(activity_time(at), true_time);
}

TEST_F(hostrt_activity, serves_one_subscriber) {
  cupti::subscriber one = nullptr;
  cupti::subscriber two = nullptr;
  ASSERT_EQ(call_cupti("cuptiSubscribe", &one, cupti::callback{}, static_cast<void*>(nullptr)),
            result::success);
  EXPECT_EQ(call_cupti("cuptiSubscribe", &two, cupti::callback{}, static_cast<void*>(nullptr)),
            result::multiple_subscribers);
  EXPECT_EQ(call_cupti("cuptiUnsubscribe", one), result::success);
  EXPECT_EQ(call_cupti("cuptiUnsubscribe", one), result::invalid_parameter);
}

TEST_F(hostrt_activity, can_be_refused) {
  cupti::subscriber made = nullptr;
  refuse_activity(35);
  EXPECT_EQ(call_cupti("cuptiSubscribe", &made, cupti::callback{}, static_cast<void*>(nullptr)),
            result::insufficient_privileges);
  EXPECT_THROW(refuse_activity(1000), std::invalid_argument);
}

TEST_F(hostrt_activity, refuses_an_unknown_kind) {
  EXPECT_EQ(call_cupti("cuptiActivityEnable", static_cast<activity_kind>(38)),
            result::invalid_kind);
}

/// Waits for a second thread that is in here at the same time.
// NOLINTNEXTLINE(readability-non-const-parameter): the signature is CUPTI's
void keep_together(CUcontext /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer,
                   std::size_t /*bytes*/, std::size_t /*valid_bytes*/) {
  static std::atomic<int> inside{0};
  auto const limit = steady::now() + 60s;
  for (++inside; inside % 2 != 0 && steady::now() < limit;) std::this_thread::yield();
  EXPECT_EQ(inside % 2, 0) << "the other buffer is handed over only after this one";
  delete[] buffer;
}

TEST_F(hostrt_activity, is_handed_over_by_several_threads_at_the_same_time) {
  ASSERT_EQ(call_cupti("cuptiActivityRegisterCallbacks", lend, keep_together), result::success);
  enable(activity_kind::marker);
  hand_over_at_once(true);
  std::array<std::thread, 2> threads;
  for (auto& each : threads) each = std::thread{[] { mark("step", true); }};
  for (auto& each : threads) each.join();
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
