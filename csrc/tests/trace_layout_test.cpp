// Compares our declarations of CUPTI with NVIDIA's headers of the installed version.

#include <gtest/gtest.h>

#ifndef PYXFER_HAS_CUPTI_HEADERS

TEST(trace_layout, matches_cuptis_headers) {
  GTEST_SKIP() << "there are no CUPTI headers to compare with: install nvidia-cuda-cupti-cu12";
}

#else

#include "trace/cupti_records.hpp"

#include <cupti.h>

#include <cstddef>
#include <cstring>

namespace pyxfer::tests {
namespace {

#if CUPTI_API_VERSION >= 130500
using their_copy = CUpti_ActivityMemcpy7;
using their_kernel = CUpti_ActivityKernel13;
#elif CUPTI_API_VERSION >= 130000
using their_copy = CUpti_ActivityMemcpy6;
using their_kernel = CUpti_ActivityKernel10;
#elif CUPTI_API_VERSION >= 26
using their_copy = CUpti_ActivityMemcpy6;
using their_kernel = CUpti_ActivityKernel9;
#else
using their_copy = CUpti_ActivityMemcpy5;
using their_kernel = CUpti_ActivityKernel9;
#endif

#if CUPTI_API_VERSION >= 24
using their_memory = CUpti_ActivityMemory4;
#else
using their_memory = CUpti_ActivityMemory3;
#endif

#if CUPTI_API_VERSION >= 22
using their_overhead = CUpti_ActivityOverhead3;
#else
using their_overhead = CUpti_ActivityOverhead;
#endif

/// Checks that our field and theirs have the same offset and the same size.
#define EXPECT_SAME(ours, field, theirs, their_field)                     \
  EXPECT_EQ(offsetof(cupti::ours, field), offsetof(theirs, their_field)); \
  EXPECT_EQ(sizeof(cupti::ours::field), sizeof(theirs::their_field))

TEST(trace_layout, of_a_copy) {
  EXPECT_SAME(copy_activity, kind, their_copy, kind);
  EXPECT_SAME(copy_activity, way, their_copy, copyKind);
  EXPECT_SAME(copy_activity, source, their_copy, srcKind);
  EXPECT_SAME(copy_activity, target, their_copy, dstKind);
  EXPECT_SAME(copy_activity, flags, their_copy, flags);
  EXPECT_SAME(copy_activity, bytes, their_copy, bytes);
  EXPECT_SAME(copy_activity, start, their_copy, start);
  EXPECT_SAME(copy_activity, end, their_copy, end);
  EXPECT_SAME(copy_activity, device, their_copy, deviceId);
  EXPECT_SAME(copy_activity, context, their_copy, contextId);
  EXPECT_SAME(copy_activity, stream, their_copy, streamId);
  EXPECT_SAME(copy_activity, correlation, their_copy, correlationId);
#if CUPTI_API_VERSION >= 26
  EXPECT_SAME(copy_activity, copies, their_copy, copyCount);
#endif
}

TEST(trace_layout, of_a_copy_without_a_count_ends_before_it) {
#if CUPTI_API_VERSION < 26
  EXPECT_LE(sizeof(their_copy), offsetof(cupti::copy_activity, copies));
  EXPECT_LT(CUPTI_API_VERSION, cupti::version_with_copy_count);
#else
  EXPECT_GE(CUPTI_API_VERSION, cupti::version_with_copy_count);
#endif
}

TEST(trace_layout, of_a_peer_copy) {
  using theirs = CUpti_ActivityMemcpyPtoP4;
  EXPECT_SAME(peer_copy_activity, way, theirs, copyKind);
  EXPECT_SAME(peer_copy_activity, source, theirs, srcKind);
  EXPECT_SAME(peer_copy_activity, target, theirs, dstKind);
  EXPECT_SAME(peer_copy_activity, flags, theirs, flags);
  EXPECT_SAME(peer_copy_activity, bytes, theirs, bytes);
  EXPECT_SAME(peer_copy_activity, start, theirs, start);
  EXPECT_SAME(peer_copy_activity, end, theirs, end);
  EXPECT_SAME(peer_copy_activity, device, theirs, deviceId);
  EXPECT_SAME(peer_copy_activity, context, theirs, contextId);
  EXPECT_SAME(peer_copy_activity, stream, theirs, streamId);
  EXPECT_SAME(peer_copy_activity, correlation, theirs, correlationId);
}

TEST(trace_layout, of_a_set) {
  using theirs = CUpti_ActivityMemset4;
  EXPECT_SAME(set_activity, bytes, theirs, bytes);
  EXPECT_SAME(set_activity, start, theirs, start);
  EXPECT_SAME(set_activity, end, theirs, end);
  EXPECT_SAME(set_activity, device, theirs, deviceId);
  EXPECT_SAME(set_activity, context, theirs, contextId);
  EXPECT_SAME(set_activity, stream, theirs, streamId);
  EXPECT_SAME(set_activity, correlation, theirs, correlationId);
  EXPECT_SAME(set_activity, flags, theirs, flags);
  EXPECT_SAME(set_activity, memory, theirs, memoryKind);
}

TEST(trace_layout, of_a_kernel) {
  EXPECT_SAME(kernel_activity, start, their_kernel, start);
  EXPECT_SAME(kernel_activity, end, their_kernel, end);
  EXPECT_SAME(kernel_activity, device, their_kernel, deviceId);
  EXPECT_SAME(kernel_activity, context, their_kernel, contextId);
  EXPECT_SAME(kernel_activity, stream, their_kernel, streamId);
  EXPECT_SAME(kernel_activity, correlation, their_kernel, correlationId);
  EXPECT_SAME(kernel_activity, name, their_kernel, name);
}

TEST(trace_layout, of_a_call) {
  using theirs = CUpti_ActivityAPI;
  EXPECT_SAME(call_activity, callback, theirs, cbid);
  EXPECT_SAME(call_activity, start, theirs, start);
  EXPECT_SAME(call_activity, end, theirs, end);
  EXPECT_SAME(call_activity, thread, theirs, threadId);
  EXPECT_SAME(call_activity, correlation, theirs, correlationId);
  EXPECT_SAME(call_activity, result, theirs, returnValue);
}

TEST(trace_layout, of_a_marker) {
  using theirs = CUpti_ActivityMarker2;
  EXPECT_SAME(marker_activity, flags, theirs, flags);
  EXPECT_SAME(marker_activity, timestamp, theirs, timestamp);
  EXPECT_SAME(marker_activity, id, theirs, id);
  EXPECT_SAME(marker_activity, object_kind, theirs, objectKind);
  EXPECT_SAME(marker_activity, object, theirs, objectId);
  EXPECT_SAME(marker_activity, name, theirs, name);
}

TEST(trace_layout, of_an_overhead) {
  EXPECT_SAME(overhead_activity, overhead, their_overhead, overheadKind);
  EXPECT_SAME(overhead_activity, object_kind, their_overhead, objectKind);
  EXPECT_SAME(overhead_activity, object, their_overhead, objectId);
  EXPECT_SAME(overhead_activity, start, their_overhead, start);
  EXPECT_SAME(overhead_activity, end, their_overhead, end);
}

TEST(trace_layout, of_an_allocation) {
  EXPECT_SAME(memory_activity, operation, their_memory, memoryOperationType);
  EXPECT_SAME(memory_activity, memory, their_memory, memoryKind);
  EXPECT_SAME(memory_activity, correlation, their_memory, correlationId);
  EXPECT_SAME(memory_activity, address, their_memory, address);
  EXPECT_SAME(memory_activity, bytes, their_memory, bytes);
  EXPECT_SAME(memory_activity, timestamp, their_memory, timestamp);
  EXPECT_SAME(memory_activity, device, their_memory, deviceId);
  EXPECT_SAME(memory_activity, context, their_memory, contextId);
  EXPECT_SAME(memory_activity, stream, their_memory, streamId);
}

TEST(trace_layout, of_the_thread_of_an_object) {
  CUpti_ActivityObjectKindId theirs{};
  theirs.pt.processId = 5;
  theirs.pt.threadId = 6;
  cupti::object_id ours{};
  static_assert(sizeof ours == sizeof theirs);
  std::memcpy(&ours, &theirs, sizeof ours);
  EXPECT_EQ(ours.process, 5U);
  EXPECT_EQ(ours.thread, 6U);
}

template <typename Ours>
void expect_number(Ours ours, int theirs) {
  EXPECT_EQ(static_cast<int>(ours), theirs);
}

TEST(trace_layout, has_the_numbers_of_the_kinds) {
  expect_number(cupti::activity_kind::copy, CUPTI_ACTIVITY_KIND_MEMCPY);
  expect_number(cupti::activity_kind::set, CUPTI_ACTIVITY_KIND_MEMSET);
  expect_number(cupti::activity_kind::driver_call, CUPTI_ACTIVITY_KIND_DRIVER);
  expect_number(cupti::activity_kind::runtime_call, CUPTI_ACTIVITY_KIND_RUNTIME);
  expect_number(cupti::activity_kind::kernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  expect_number(cupti::activity_kind::marker, CUPTI_ACTIVITY_KIND_MARKER);
  expect_number(cupti::activity_kind::overhead, CUPTI_ACTIVITY_KIND_OVERHEAD);
  expect_number(cupti::activity_kind::peer_copy, CUPTI_ACTIVITY_KIND_MEMCPY2);
  expect_number(cupti::activity_kind::memory, CUPTI_ACTIVITY_KIND_MEMORY2);
}

TEST(trace_layout, has_the_numbers_of_the_results) {
  expect_number(cupti::result::success, CUPTI_SUCCESS);
  expect_number(cupti::result::invalid_parameter, CUPTI_ERROR_INVALID_PARAMETER);
  expect_number(cupti::result::invalid_operation, CUPTI_ERROR_INVALID_OPERATION);
  expect_number(cupti::result::limit_reached, CUPTI_ERROR_MAX_LIMIT_REACHED);
  expect_number(cupti::result::not_compatible, CUPTI_ERROR_NOT_COMPATIBLE);
  expect_number(cupti::result::not_initialized, CUPTI_ERROR_NOT_INITIALIZED);
  expect_number(cupti::result::invalid_kind, CUPTI_ERROR_INVALID_KIND);
  expect_number(cupti::result::insufficient_privileges, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
  expect_number(cupti::result::multiple_subscribers,
                CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  expect_number(cupti::result::virtualized_insufficient_privileges,
                CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES);
  expect_number(cupti::result::unknown, CUPTI_ERROR_UNKNOWN);
}

TEST(trace_layout, has_the_numbers_of_flags) {
  expect_number(cupti::domain::driver, CUPTI_CB_DOMAIN_DRIVER_API);
  expect_number(cupti::domain::runtime, CUPTI_CB_DOMAIN_RUNTIME_API);
  expect_number(cupti::flush_forced, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  expect_number(cupti::native_thread_ids, CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
  expect_number(cupti::object_is_thread, CUPTI_ACTIVITY_OBJECT_THREAD);
  expect_number(cupti::asynchronous, CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC);
  expect_number(cupti::asynchronous, CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC);
  expect_number(cupti::marker_instant, CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS);
  expect_number(cupti::marker_begin, CUPTI_ACTIVITY_FLAG_MARKER_START);
  expect_number(cupti::marker_end, CUPTI_ACTIVITY_FLAG_MARKER_END);
  expect_number(cupti::memory_allocated, CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION);
  expect_number(cupti::memory_released, CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE);
}

}  // namespace
}  // namespace pyxfer::tests

#endif
