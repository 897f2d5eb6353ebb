#include <thread>

#include "hostrt_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

/// Begins a capture, and ends it if the test does not.
class capture_of {
 public:
  explicit capture_of(cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal)
      : stream_{stream} {
    EXPECT_EQ(cudaStreamBeginCapture(stream_, mode), cudaSuccess);
  }
  ~capture_of() {
    if (!ended_) (void)end();
  }
  capture_of(capture_of const&) = delete;
  capture_of& operator=(capture_of const&) = delete;
  capture_of(capture_of&&) = delete;
  capture_of& operator=(capture_of&&) = delete;

  cudaError_t end() {
    ended_ = true;
    cudaGraph_t graph = nullptr;
    auto const code = cudaStreamEndCapture(stream_, &graph);
    EXPECT_EQ(graph != nullptr, code == cudaSuccess);
    return code;
  }

 private:
  cudaStream_t stream_;
  bool ended_ = false;
};

CUstreamCaptureMode exchange_mode(CUstreamCaptureMode mode) {
  EXPECT_EQ(driver("cuThreadExchangeStreamCaptureMode", &mode), CUDA_SUCCESS);
  return mode;
}

template <typename Call>
auto in_another_thread(Call const& call) {
  return std::async(std::launch::async, call).get();
}

CUresult query(CUevent event) { return driver("cuEventQuery", event); }

class hostrt_capture : public hostrt {
 protected:
  cudaStream_t captured_ = nullptr;
  CUevent before_ = nullptr;

  void SetUp() override {
    hostrt::SetUp();
    captured_ = stream();
    before_ = event();
  }
};

using a_capture = hostrt_capture;

TEST_F(a_capture, takes_copies_without_executing_them) {
  auto* const from = pinned(8);
  auto* const to = device(8);
  from[0] = std::byte{7};
  capture_of capture{captured_};
  EXPECT_EQ(cudaMemcpyAsync(to, from, 8, cudaMemcpyHostToDevice, captured_), cudaSuccess);
  EXPECT_EQ(capture.end(), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(captured_), cudaSuccess);
  EXPECT_EQ(*host_view(to), std::byte{0});
}

TEST_F(a_capture, in_global_mode_allows_every_call_of_a_thread_in_thread_local_mode) {
  capture_of capture{captured_};
  auto const own = [&] {
    exchange_mode(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    return query(before_);
  };
  EXPECT_EQ(in_another_thread(own), CUDA_SUCCESS);
  EXPECT_EQ(capture.end(), cudaSuccess);
}

TEST_F(a_capture, is_invalid_after_a_synchronisation_with_its_device_in_any_mode) {
  capture_of capture{captured_, cudaStreamCaptureModeRelaxed};
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(capture.end(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(a_capture, refuses_work_once_it_is_invalid) {
  capture_of const capture{captured_};
  EXPECT_EQ(cudaStreamQuery(captured_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(record(before_, captured_), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(a_capture, cannot_wait_for_an_event_from_outside) {
  EXPECT_EQ(record(before_, stream()), CUDA_SUCCESS);
  capture_of capture{captured_};
  EXPECT_EQ(driver("cuStreamWaitEvent", static_cast<CUstream>(captured_), before_, 0U),
            CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(capture.end(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(a_capture, of_a_blocking_stream_refuses_work_on_the_legacy_stream) {
  auto* const blocking = stream(cudaStreamDefault);
  auto* const to = device(8);
  capture_of capture{blocking};
  EXPECT_EQ(cudaMemsetAsync(to, 0, 8, nullptr), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(capture.end(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(a_capture, ends_in_its_own_thread_and_on_its_own_stream) {
  capture_of const capture{captured_};
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(in_another_thread([&] { return cudaStreamEndCapture(captured_, &graph); }),
            cudaErrorStreamCaptureWrongThread);
  EXPECT_EQ(cudaStreamEndCapture(stream(), &graph), cudaErrorIllegalState);
}

TEST_F(a_capture, of_the_legacy_stream_is_refused) {
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal),
            cudaErrorStreamCaptureUnsupported);
}

TEST_F(a_capture, ends_with_a_reset) {
  EXPECT_EQ(cudaStreamBeginCapture(captured_, cudaStreamCaptureModeGlobal), cudaSuccess);
  reset();
  EXPECT_EQ(cudaStreamQuery(captured_), cudaSuccess);
}

TEST_F(hostrt, exchanging_the_capture_mode_returns_the_previous_one) {
  EXPECT_EQ(exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED), CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(exchange_mode(CU_STREAM_CAPTURE_MODE_GLOBAL), CU_STREAM_CAPTURE_MODE_RELAXED);
}

TEST_F(a_capture, of_a_test_returns_the_code_of_the_call) {
  auto const handle = reinterpret_cast<std::uintptr_t>(captured_);
  begin_capture(handle, "global");
  EXPECT_EQ(query(before_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(end_capture(handle), cudaErrorStreamCaptureInvalidated);
  EXPECT_THROW(begin_capture(handle, "globally"), std::invalid_argument);
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
