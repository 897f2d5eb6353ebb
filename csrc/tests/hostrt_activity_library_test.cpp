#include "activity_support.hpp"
#include "hostrt/activity.hpp"
#include "hostrt/control.hpp"

namespace pyxfer::hostrt::testing {
namespace {

using hostrt_activity_library = hostrt_activity;

TEST_F(hostrt_activity_library, counts_records_without_a_buffer) {
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

TEST_F(hostrt_activity_library, has_a_clock_that_counts_from_1970) {
  std::uint64_t now = 0;
  ASSERT_EQ(call_cupti("cuptiGetTimestamp", &now), result::success);
  auto const since_1970 = std::chrono::system_clock::now().time_since_epoch();
  EXPECT_NEAR(static_cast<double>(now) * 1e-9, std::chrono::duration<double>(since_1970).count(),
              60);
}

TEST_F(hostrt_activity_library, has_a_clock_that_can_be_skewed) {
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

TEST_F(hostrt_activity_library, serves_one_subscriber) {
  cupti::subscriber one = nullptr;
  cupti::subscriber two = nullptr;
  ASSERT_EQ(call_cupti("cuptiSubscribe", &one, cupti::callback{}, static_cast<void*>(nullptr)),
            result::success);
  EXPECT_EQ(call_cupti("cuptiSubscribe", &two, cupti::callback{}, static_cast<void*>(nullptr)),
            result::multiple_subscribers);
  EXPECT_EQ(call_cupti("cuptiUnsubscribe", one), result::success);
  EXPECT_EQ(call_cupti("cuptiUnsubscribe", one), result::invalid_parameter);
}

TEST_F(hostrt_activity_library, can_be_refused_to_a_whole_process) {
  cupti::subscriber made = nullptr;
  configure("no-trace=35");
  EXPECT_EQ(call_cupti("cuptiSubscribe", &made, cupti::callback{}, static_cast<void*>(nullptr)),
            result::insufficient_privileges);
  EXPECT_THROW(configure("no-trace=1000"), std::invalid_argument);
}

TEST_F(hostrt_activity_library, refuses_an_unknown_kind) {
  EXPECT_EQ(call_cupti("cuptiActivityEnable", static_cast<activity_kind>(38)),
            result::invalid_kind);
  EXPECT_THROW(refuse_activity(1000), std::invalid_argument);
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
