#include "cuda/stream.hpp"

#include "copy/gate.hpp"
#include "cuda/device.hpp"
#include "engine_support.hpp"

#include <thread>
#include <utility>

namespace pyxfer::tests {
namespace {

using cuda_stream = engine_test;

TEST_F(cuda_stream, keeps_its_handle_and_device_when_moved) {
  hostrt::set_device_count(2);
  stream first{1};
  auto* const handle = first.handle();
  stream const second{std::move(first)};
  EXPECT_EQ(second.handle(), handle);
  EXPECT_EQ(second.view().handle(), handle);
  EXPECT_EQ(second.device(), 1);
}

TEST_F(cuda_stream, never_waits_for_the_legacy_default_stream) {
  stream const own{0};
  gate const held{stream_view{nullptr}, 60};
  ASSERT_EQ(cudaMemsetAsync(nullptr, 0, 0, own.handle()), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(own.handle()), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
}

using cuda_event = engine_test;
using std::chrono::milliseconds;

TEST_F(cuda_event, for_order_only_passes_and_has_no_time) {
  stream const own{0};
  event start{0, event_use::order};
  event stop{0, event_use::order};
  start.record(own.view());
  stop.record(own.view());
  synchronize_device(0);
  EXPECT_TRUE(start.passed() && stop.passed());
  EXPECT_THROW(static_cast<void>(stop.seconds_since(start)), cuda_error);
}

TEST_F(cuda_event, has_passed_when_its_stream_reached_it) {
  stream const own{0};
  event reached{0};
  gate held{own.view(), 60};
  reached.record(own.view());
  EXPECT_FALSE(reached.passed());
  held.open();
  synchronize_device(0);
  EXPECT_TRUE(reached.passed());
}

TEST_F(cuda_event, measures_the_time_between_two_places) {
  stream const own{0};
  event start{0};
  event stop{0};
  start.record(own.view());
  hostrt::stall("cudaLaunchHostFunc", 1, 0.05);
  gate{own.view(), 60}.open();
  stop.record(own.view());
  synchronize_device(0);
  EXPECT_GE(stop.seconds_since(start), 0.05);
  EXPECT_LT(start.seconds_since(stop), 0);
}

TEST_F(cuda_event, may_be_recorded_on_any_librarys_stream) {
  cudaStream_t theirs = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&theirs, cudaStreamDefault), cudaSuccess);
  event reached{0};
  for (auto* const on : {theirs, static_cast<cudaStream_t>(nullptr), cudaStreamPerThread}) {
    reached.record(stream_view{on});
    synchronize_device(0);
    EXPECT_TRUE(reached.passed());
  }
  EXPECT_EQ(cudaStreamDestroy(theirs), cudaSuccess);
}

TEST_F(cuda_event, holds_later_work_of_another_stream) {
  stream const first{0};
  stream const second{0};
  event reached{0};
  event after{0};
  gate held{first.view(), 60};
  reached.record(first.view());
  reached.hold(second.view());
  after.record(second.view());
  std::this_thread::sleep_for(milliseconds{20});
  EXPECT_FALSE(after.passed());
  held.open();
  synchronize_device(0);
  EXPECT_TRUE(after.passed());
}

TEST_F(cuda_event, has_no_time_before_it_passed) {
  stream const own{0};
  event start{0};
  event stop{0};
  start.record(own.view());
  gate held{own.view(), 60};
  stop.record(own.view());
  EXPECT_EQ(text_of<cuda_error>([&] {
              static_cast<void>(stop.seconds_since(start));
            }).rfind("cuEventElapsedTime failed with CUDA_ERROR_NOT_READY (600)", 0),
            0U);
  held.open();
}

}  // namespace
}  // namespace pyxfer::tests
