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

class hostrt_link : public hostrt {
 protected:
  /// The time between two events around these copies. Each copy has its own stream, and all are
  /// queued before the first begins.
  double time_of(std::vector<cudaMemcpyKind> const& kinds) {
    auto* const first = stream();
    auto* const start = event();
    auto* const end = event();
    gate closed;
    EXPECT_EQ(closed.close(first), cudaSuccess);
    EXPECT_EQ(record(start, first), CUDA_SUCCESS);
    for (auto const kind : kinds) {
      auto* const on = stream();
      auto* const done = event();
      EXPECT_EQ(cudaStreamWaitEvent(on, start, 0), cudaSuccess);
      auto const up = kind == cudaMemcpyHostToDevice;
      auto* const on_host = pinned(size);
      auto* const on_device = device(size);
      EXPECT_EQ(cudaMemcpyAsync(up ? on_device : on_host, up ? on_host : on_device, size, kind, on),
                cudaSuccess);
      EXPECT_EQ(record(done, on), CUDA_SUCCESS);
      EXPECT_EQ(cudaStreamWaitEvent(first, done, 0), cudaSuccess);
    }
    EXPECT_EQ(record(end, first), CUDA_SUCCESS);
    auto const begun = now_s();
    closed.open();
    EXPECT_EQ(cudaStreamSynchronize(first), cudaSuccess);
    auto const waited = now_s() - begun;
    float ms = 0;
    EXPECT_EQ(elapsed(ms, start, end), CUDA_SUCCESS);
    auto const taken = static_cast<double>(ms) / 1e3;
    EXPECT_GE(waited, taken - clock_step_s);
    return taken;
  }
};

TEST_F(hostrt_link, a_copy_takes_the_modelled_time) {
  constexpr double latency_s = 0.02;
  model_link({rate, latency_s}, {0, 0});
  EXPECT_NEAR(time_of({cudaMemcpyHostToDevice}), crossing_s + latency_s, clock_step_s);
}

TEST_F(hostrt_link, each_direction_has_its_own_speed) {
  model_link({rate, 0}, {rate / 2, 0});
  EXPECT_NEAR(time_of({cudaMemcpyDeviceToHost}), 2 * crossing_s, clock_step_s);
}

TEST_F(hostrt_link, copies_in_one_direction_share_an_engine) {
  model_link({rate, 0}, {rate, 0});
  EXPECT_NEAR(time_of({cudaMemcpyHostToDevice, cudaMemcpyHostToDevice}), 2 * crossing_s,
              clock_step_s);
}

TEST_F(hostrt_link, opposite_directions_run_at_the_same_time) {
  model_link({rate, 0}, {rate, 0});
  EXPECT_NEAR(time_of({cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost}), crossing_s, clock_step_s);
}

TEST_F(hostrt_link, the_time_of_a_copy_does_not_depend_on_the_speed_of_memory) {
  model_link({1e13, 0}, {0, 0});
  EXPECT_NEAR(time_of({cudaMemcpyHostToDevice}), static_cast<double>(size) / 1e13, clock_step_s);
}

TEST_F(hostrt_link, copies_on_the_device_do_not_cross_it) {
  model_link({1, 0}, {1, 0});
  auto* const s = stream();
  ASSERT_EQ(cudaMemcpyAsync(device(size), device(size), size, cudaMemcpyDeviceToDevice, s),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
}

/// Copies between devices, and on links that several devices share. All are queued at once.
class hostrt_shared_links : public hostrt {
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
    closed.open();
    std::vector<double> found;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      EXPECT_EQ(driver("cuEventSynchronize", ends[i]), CUDA_SUCCESS);
      float ms = 0;
      EXPECT_EQ(elapsed(ms, starts[i], ends[i]), CUDA_SUCCESS);
      found.push_back(static_cast<double>(ms) / 1e3);
    }
    std::sort(found.begin(), found.end());
    return found;
  }
};

TEST_F(hostrt_shared_links, devices_that_copy_at_once_share_an_uplink) {
  model_link({rate, 0}, {rate, 0});
  model_uplink({0, 1}, {rate, rate, 0});
  auto const found = times_of({{-1, 0}, {-1, 1}, {-1, 2}, {1, -1}});
  EXPECT_NEAR(found[0], crossing_s, clock_step_s);
  EXPECT_NEAR(found[1], crossing_s, clock_step_s);
  EXPECT_NEAR(found[2], 2 * crossing_s, clock_step_s);
  EXPECT_NEAR(found[3], 2 * crossing_s, clock_step_s);
}

TEST_F(hostrt_shared_links, a_wide_uplink_delays_nothing) {
  model_link({rate, 0}, {rate, 0});
  model_uplink({0, 1}, {2 * rate, 2 * rate, 0});
  for (auto const s : times_of({{-1, 0}, {-1, 1}})) EXPECT_NEAR(s, crossing_s, clock_step_s);
}

TEST_F(hostrt_shared_links, a_pair_is_used_with_access_in_either_direction) {
  model_link({rate / 4, 0}, {rate / 2, 0});
  model_pair(0, 1, {rate, 0});
  EXPECT_NEAR(times_of({{0, 1}})[0], 4 * crossing_s, clock_step_s);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
  EXPECT_NEAR(times_of({{0, 1}})[0], crossing_s, clock_step_s);
  EXPECT_NEAR(times_of({{1, 0}})[0], 4 * crossing_s, clock_step_s);
}

TEST_F(hostrt_shared_links, a_device_may_have_another_link_and_local_copies_a_rate) {
  model_link({rate, 0}, {rate, 0});
  model_link_of(1, {rate / 2, 0}, {rate / 2, 0});
  model_pair(2, 2, {2 * rate, 0});
  auto const found = times_of({{-1, 0}, {-1, 1}, {2, 2}});
  EXPECT_NEAR(found[0], crossing_s / 2, clock_step_s);
  EXPECT_NEAR(found[1], crossing_s, clock_step_s);
  EXPECT_NEAR(found[2], 2 * crossing_s, clock_step_s);
}

TEST_F(hostrt_shared_links, impossible_devices_are_refused) {
  EXPECT_THROW(model_link_of(16, {1, 0}, {1, 0}), std::invalid_argument);
  EXPECT_THROW(model_uplink({0, -1}, {1, 1, 0}), std::invalid_argument);
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
