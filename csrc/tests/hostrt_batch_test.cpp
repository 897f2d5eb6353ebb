#include <array>
#include <cstring>
#include <utility>

#include "hostrt_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

/// A batch of two pinned copies, which a test can make invalid before it is issued.
class hostrt_batch : public hostrt {
 protected:
  void SetUp() override {
    hostrt::SetUp();
    stream_ = stream();
    source_ = pinned(200);
    target_ = device(200);
    std::memset(source_, 9, 200);
    sources_ = {source_, source_ + 100};
    targets_ = {target_, target_ + 100};
    attributes_[0].srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  }

  cudaError_t issue() {
#if CUDART_VERSION >= 13000
    return cudaMemcpyBatchAsync(targets_.data(), const_cast<void const**>(sources_.data()),
                                sizes_.data(), count_, attributes_.data(), first_of_.data(),
                                attribute_count_, stream_);
#else
    return cudaMemcpyBatchAsync(targets_.data(), sources_.data(), sizes_.data(), count_,
                                attributes_.data(), first_of_.data(), attribute_count_, &failed_,
                                stream_);
#endif
  }

  cudaStream_t stream_ = nullptr;
  std::byte* source_ = nullptr;
  std::byte* target_ = nullptr;
  std::array<void*, 2> sources_{};
  std::array<void*, 2> targets_{};
  std::array<std::size_t, 2> sizes_{100, 100};
  std::size_t count_ = 2;
  std::array<cudaMemcpyAttributes, 2> attributes_{};
  std::array<std::size_t, 2> first_of_{0, 1};
  std::size_t attribute_count_ = 1;
  std::size_t failed_ = 0;
};

TEST_F(hostrt_batch, returns_after_reading_sources_that_must_be_read_during_the_call) {
  attributes_[0].srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall;
  stall("cudaMemcpyBatchAsync", 1, 0.05);
  ASSERT_EQ(issue(), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess);
}

TEST_F(hostrt_batch, has_the_latency_once) {
  model_link({10e3, 0.05}, {0, 0});
  auto* const start = event();
  auto* const end = event();
  gate closed;
  ASSERT_EQ(closed.close(stream_), cudaSuccess);
  ASSERT_EQ(record(start, stream_), CUDA_SUCCESS);
  ASSERT_EQ(issue(), cudaSuccess);
  ASSERT_EQ(record(end, stream_), CUDA_SUCCESS);
  closed.open();
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  float ms = 0;
  ASSERT_EQ(elapsed(ms, start, end), CUDA_SUCCESS);
  EXPECT_FLOAT_EQ(ms, 70.0F);
}

TEST_F(hostrt_batch, keeps_its_caller_busy_for_each_copy) {
  model_issue({0.01, 0.02});
  auto begun = now_s();
  ASSERT_EQ(issue(), cudaSuccess);
  EXPECT_GE(now_s() - begun, 0.05);
  begun = now_s();
  ASSERT_EQ(cudaMemcpyAsync(target_, source_, 200, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  EXPECT_GE(now_s() - begun, 0.01);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

TEST_F(hostrt_batch, needs_a_stream_a_copy_and_an_access_order) {
  auto const refused_with = [&](auto& field, auto wrong) {
    auto const right = std::exchange(field, wrong);
    EXPECT_EQ(issue(), cudaErrorInvalidValue);
    field = right;
  };
  refused_with(stream_, nullptr);
  refused_with(stream_, cudaStreamLegacy);
  refused_with(count_, 0U);
  refused_with(attribute_count_, 0U);
  refused_with(attributes_[0].srcAccessOrder, cudaMemcpySrcAccessOrderInvalid);
  EXPECT_EQ(issue(), cudaSuccess);
}

TEST_F(hostrt_batch, a_bad_copy_is_refused_with_all_others) {
  sizes_[1] = 101;
  ASSERT_EQ(issue(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess);
#if CUDART_VERSION < 13000
  EXPECT_EQ(failed_, 1U);
#endif
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
