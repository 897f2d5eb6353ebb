#include "hostrt_support.hpp"

#include <algorithm>

namespace pyxfer::hostrt::testing {
namespace {

constexpr double rate = 50e6;  // slow against any memory, so that sharing a core does not show
constexpr std::size_t size = 4 * mib;
constexpr double crossing_s = static_cast<double>(size) / rate;

class hostrt_link : public hostrt {
 protected:
  /// The least time of a few tries: what else the machine does can only lengthen one.
  double least_time_of(std::vector<cudaMemcpyKind> const& kinds) {
    auto least_s = time_of(kinds);
    for (int i = 0; i < 4; ++i) { least_s = std::min(least_s, time_of(kinds)); }
    return least_s;
  }

  /// Copies in both or one direction on a stream each, and returns the time until all are done.
  double time_of(std::vector<cudaMemcpyKind> const& kinds) {
    struct copy {
      std::byte* on_host;
      std::byte* on_device;
      cudaStream_t on;
    };
    std::vector<copy> copies;
    for (auto const kind : kinds) {
      (void)kind;
      copies.push_back({pinned(size), device(size), stream()});
    }
    auto const begun = now_s();
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      auto const& [on_host, on_device, on] = copies[i];
      auto const up = kinds[i] == cudaMemcpyHostToDevice;
      EXPECT_EQ(
          cudaMemcpyAsync(up ? on_device : on_host, up ? on_host : on_device, size, kinds[i], on),
          cudaSuccess);
    }
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return now_s() - begun;
  }
};

TEST_F(hostrt_link, a_copy_takes_the_modelled_time) {
  constexpr double latency_s = 0.02;
  model_link({rate, latency_s}, {0, 0});
  auto const taken = least_time_of({cudaMemcpyHostToDevice});
  EXPECT_GE(taken, crossing_s + latency_s);
  EXPECT_LT(taken, 2 * (crossing_s + latency_s));
}

TEST_F(hostrt_link, each_direction_has_its_own_speed) {
  model_link({rate, 0}, {rate / 2, 0});
  auto const taken = least_time_of({cudaMemcpyDeviceToHost});
  EXPECT_GE(taken, 2 * crossing_s);
  EXPECT_LT(taken, 4 * crossing_s);
}

TEST_F(hostrt_link, copies_in_one_direction_share_an_engine) {
  model_link({rate, 0}, {rate, 0});
  auto const taken = least_time_of({cudaMemcpyHostToDevice, cudaMemcpyHostToDevice});
  EXPECT_GE(taken, 2 * crossing_s);
}

TEST_F(hostrt_link, opposite_directions_run_side_by_side) {
  model_link({rate, 0}, {rate, 0});
  auto const taken = least_time_of({cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost});
  EXPECT_GE(taken, crossing_s);
  EXPECT_LT(taken, 1.8 * crossing_s);
}

TEST_F(hostrt_link, copies_on_the_device_do_not_cross_it) {
  model_link({1, 0}, {1, 0});
  auto* const s = stream();
  ASSERT_EQ(cudaMemcpyAsync(device(size), device(size), size, cudaMemcpyDeviceToDevice, s),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
}

TEST_F(hostrt_link, events_see_the_modelled_time) {
  model_link({rate, 0}, {0, 0});
  auto* const s = stream();
  auto* const source = pinned(size);
  auto* const target = device(size);
  auto* const start = event();
  auto* const end = event();
  ASSERT_EQ(record(start, s), CUDA_SUCCESS);
  ASSERT_EQ(cudaMemcpyAsync(target, source, size, cudaMemcpyHostToDevice, s), cudaSuccess);
  ASSERT_EQ(record(end, s), CUDA_SUCCESS);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  float ms = 0;
  ASSERT_EQ(elapsed(ms, start, end), CUDA_SUCCESS);
  EXPECT_GE(ms, static_cast<float>(crossing_s * 1e3));
  EXPECT_LT(ms, static_cast<float>(2 * crossing_s * 1e3));
}

/// Half a second for a copy, in which the test has done its part.
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
