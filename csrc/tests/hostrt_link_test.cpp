#include <algorithm>
#include <stdexcept>
#include <utility>

#include "hostrt_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

constexpr double rate = 50e6;
constexpr std::size_t size = mib;
constexpr double crossing_s = static_cast<double>(size) / rate;
// The rounding of an event's time, which is in float milliseconds.
constexpr double clock_step_s = 1e-8;

/// Copies on the links of several devices. All are queued before the first begins.
class hostrt_link : public hostrt {
 protected:
  void SetUp() override {
    hostrt::SetUp();
    set_device_count(3);
  }

  std::byte* memory(int of) {
    if (of < 0) return pinned(size);
    EXPECT_EQ(cudaSetDevice(of), cudaSuccess);
    return device(size);
  }

  /// The seconds of each copy, from one common begin to its end; a path is a source and a target.
  std::vector<double> times_of(std::vector<std::pair<int, int>> const& paths) {
    std::vector<CUevent> starts;
    std::vector<CUevent> ends;
    gate closed;
    cudaStream_t first = nullptr;
    for (auto const& [from, to] : paths) {
      auto* const source = memory(from);
      auto* const target = memory(to);
      EXPECT_EQ(cudaSetDevice(std::max(from, to)), cudaSuccess);
      auto* const on = stream();
      starts.push_back(event());
      ends.push_back(event());
      if (first == nullptr) {
        first = on;
        EXPECT_EQ(closed.close(on), cudaSuccess);
      } else {
        EXPECT_EQ(cudaStreamWaitEvent(on, starts.front(), 0), cudaSuccess);
      }
      EXPECT_EQ(record(starts.back(), on), CUDA_SUCCESS);
      EXPECT_EQ(cudaMemcpyAsync(target, source, size, cudaMemcpyDefault, on), cudaSuccess);
      EXPECT_EQ(record(ends.back(), on), CUDA_SUCCESS);
    }
    auto const begun = now_s();
    closed.open();
    std::vector<double> found;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      EXPECT_EQ(driver("cuEventSynchronize", ends[i]), CUDA_SUCCESS);
      float ms = 0;
      EXPECT_EQ(elapsed(ms, starts[i], ends[i]), CUDA_SUCCESS);
      found.push_back(static_cast<double>(ms) / 1e3);
    }
    std::sort(found.begin(), found.end());
    EXPECT_GE(now_s() - begun, found.back() - clock_step_s);
    return found;
  }

  /// The seconds of a copy between devices without access, whose call waits for the event before.
  double through_host_s(int from, int to) {
    auto* const source = memory(from);
    auto* const target = memory(to);
    auto* const on = stream();
    auto* const start = event();
    auto* const end = event();
    EXPECT_EQ(record(start, on), CUDA_SUCCESS);
    EXPECT_EQ(cudaMemcpyAsync(target, source, size, cudaMemcpyDefault, on), cudaSuccess);
    EXPECT_EQ(record(end, on), CUDA_SUCCESS);
    EXPECT_EQ(driver("cuEventSynchronize", end), CUDA_SUCCESS);
    float ms = 0;
    EXPECT_EQ(elapsed(ms, start, end), CUDA_SUCCESS);
    return static_cast<double>(ms) / 1e3;
  }
};

TEST_F(hostrt_link, a_copy_takes_the_modelled_time) {
  constexpr double latency_s = 0.02;
  model_link({rate, latency_s}, {0, 0});
  EXPECT_NEAR(times_of({{-1, 0}}).back(), crossing_s + latency_s, clock_step_s);
}

TEST_F(hostrt_link, copies_in_one_direction_share_an_engine) {
  model_link({rate, 0}, {rate, 0});
  EXPECT_NEAR(times_of({{-1, 0}, {-1, 0}}).back(), 2 * crossing_s, clock_step_s);
}

TEST_F(hostrt_link, opposite_directions_run_at_the_same_time) {
  model_link({rate, 0}, {rate, 0});
  EXPECT_NEAR(times_of({{-1, 0}, {0, -1}}).back(), crossing_s, clock_step_s);
}

TEST_F(hostrt_link, the_time_of_a_copy_does_not_depend_on_the_speed_of_memory) {
  model_link({1e13, 0}, {0, 0});
  EXPECT_NEAR(times_of({{-1, 0}}).back(), static_cast<double>(size) / 1e13, clock_step_s);
}

TEST_F(hostrt_link, copies_on_the_device_do_not_cross_it) {
  model_link({1, 0}, {1, 0});
  EXPECT_EQ(times_of({{0, 0}}).size(), 1U);
}

TEST_F(hostrt_link, a_pair_is_used_with_access_in_either_direction) {
  model_link({rate / 4, 0}, {rate / 2, 0});
  model_pair(0, 1, {rate, 0});
  EXPECT_GE(through_host_s(0, 1), 4 * crossing_s - clock_step_s);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
  EXPECT_NEAR(times_of({{0, 1}})[0], crossing_s, clock_step_s);
  EXPECT_NEAR(times_of({{1, 0}})[0], 4 * crossing_s, clock_step_s);
}

TEST_F(hostrt_link, impossible_devices_are_refused) {
  EXPECT_THROW(model_link_of(16, {1, 0}, {1, 0}), std::invalid_argument);
  EXPECT_THROW(model_pair(0, 16, {1, 0}), std::invalid_argument);
  EXPECT_THROW(set_attribute_of(-1, 1, 1), std::invalid_argument);
}

/// A copy takes half a second, which is longer than the test needs to act.
class a_slow_copy : public hostrt {
 protected:
  void SetUp() override {
    hostrt::SetUp();
    on_ = stream();
    source_ = pinned(8);
    target_ = device(8);
    source_[7] = std::byte{1};
    model_link({0, 0.5}, {0, 0});
    EXPECT_EQ(cudaMemcpyAsync(target_, source_, 8, cudaMemcpyHostToDevice, on_), cudaSuccess);
    std::this_thread::sleep_for(50ms);  // the copy begins in that time
  }

  cudaStream_t on_ = nullptr;
  std::byte* source_ = nullptr;
  std::byte* target_ = nullptr;
};

TEST_F(a_slow_copy, takes_a_source_that_is_changed_too_early) {
  source_[7] = std::byte{2};
  release_stalls();  // orders the change before the copy's end, for ThreadSanitizer
  ASSERT_EQ(cudaStreamSynchronize(on_), cudaSuccess);
  EXPECT_EQ(host_view(target_)[7], std::byte{2});
}

TEST_F(a_slow_copy, has_not_reached_a_target_that_is_read_too_early) {
  EXPECT_EQ(host_view(target_)[7], std::byte{0});
  release_stalls();
  ASSERT_EQ(cudaStreamSynchronize(on_), cudaSuccess);
  EXPECT_EQ(host_view(target_)[7], std::byte{1});
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
