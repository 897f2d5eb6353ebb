#include "hostrt_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

constexpr double rate = 500e6;  // slower than any memory
constexpr std::size_t size = 4 * mib;
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

TEST_F(hostrt_link, a_link_is_not_faster_than_memory) {
  model_link({1e15, 0}, {0, 0});
  EXPECT_GT(time_of({cudaMemcpyHostToDevice}), static_cast<double>(size) / 1e12);
}

TEST_F(hostrt_link, copies_on_the_device_do_not_cross_it) {
  model_link({1, 0}, {1, 0});
  auto* const s = stream();
  ASSERT_EQ(cudaMemcpyAsync(device(size), device(size), size, cudaMemcpyDeviceToDevice, s),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
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
  EXPECT_EQ(target_[7], std::byte{2});
}

TEST_F(a_slow_copy, has_not_reached_a_target_that_is_read_too_early) {
  EXPECT_EQ(target_[7], std::byte{0});
  release_stalls();
  ASSERT_EQ(cudaStreamSynchronize(on_), cudaSuccess);
  EXPECT_EQ(target_[7], std::byte{1});
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
