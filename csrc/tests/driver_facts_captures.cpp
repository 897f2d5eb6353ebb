#include "driver_facts_support.hpp"
#include "links/kernel_text.hpp"

namespace pyxfer::facts {
namespace {

CUresult exchange_mode(CUstreamCaptureMode& mode) {
  return driver("cuThreadExchangeStreamCaptureMode", &mode);
}

std::string capture_status(cudaStream_t stream) {
  auto status = CU_STREAM_CAPTURE_STATUS_NONE;
  auto const code = driver("cuStreamIsCapturing", static_cast<CUstream>(stream), &status);
  return code == CUDA_SUCCESS ? "status " + text(status) : text(code);
}

struct named_call {
  char const* name;
  std::function<std::string()> answer;
};

/// The result of the action, and whether the capture was valid after it.
template <typename Action>
void during_a_capture(fact_report& all, std::string const& name, std::string const& relied_on,
                      Action const& action,
                      cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
  auto* const captured = make_stream();
  static_cast<void>(cudaStreamBeginCapture(captured, mode));
  auto const found = action(captured);
  cudaGraph_t graph = nullptr;
  auto const end = cudaStreamEndCapture(captured, &graph);
  all.add(name, relied_on, found + ", capture " + text(end));
  destroy(captured);
}

/// All calls that the engine makes under a guard.
void check_relaxed(fact_report& all) {
  void* on_device = nullptr;
  void* on_host = nullptr;
  std::vector<std::byte> own(page);
  auto* const late = make_event();
  cudaStream_t created = nullptr;
  CUmodule kernels = nullptr;
  std::vector<named_call> const relaxed{
      {"cuEventQuery", [&] { return text(query(all.event)); }},
      {"cudaMalloc", [&] { return text(cudaMalloc(&on_device, page)); }},
      {"cudaFree", [&] { return text(cudaFree(on_device)); }},
      {"cudaHostAlloc", [&] { return text(cudaHostAlloc(&on_host, page, 0)); }},
      {"cudaFreeHost", [&] { return text(cudaFreeHost(on_host)); }},
      {"cudaHostRegister", [&] { return text(cudaHostRegister(own.data(), page, 0)); }},
      {"cudaHostUnregister", [&] { return text(cudaHostUnregister(own.data())); }},
      {"cudaStreamCreateWithFlags",
       [&] { return text(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking)); }},
      {"cuEventDestroy", [&] { return text(driver("cuEventDestroy", late)); }},
      {"cuModuleLoadData",
       [&] {
         static_cast<void>(cudaSetDevice(0));
         return text(driver("cuModuleLoadData", &kernels, static_cast<void const*>(kernel_text)));
       }},
      {"cuModuleUnload", [&] { return text(driver("cuModuleUnload", kernels)); }},
  };
  for (auto const& [name, answer] : relaxed) {
    auto const relaxed_call = [&wanted = answer] {
      auto mode = CU_STREAM_CAPTURE_MODE_RELAXED;
      static_cast<void>(exchange_mode(mode));
      auto const found = wanted();
      static_cast<void>(exchange_mode(mode));
      return found;
    };
    during_a_capture(all, std::string{name} + " in a relaxed thread beside a global capture",
                     "0, capture 0", [&](cudaStream_t) { return in_another_thread(relaxed_call); });
  }
  destroy(created);
  during_a_capture(all, "cuEventQuery in the capturing thread, relaxed", "0, capture 0",
                   [&](cudaStream_t) {
                     auto mode = CU_STREAM_CAPTURE_MODE_RELAXED;
                     static_cast<void>(exchange_mode(mode));
                     auto const found = text(query(all.event));
                     static_cast<void>(exchange_mode(mode));
                     return found;
                   });
}

}  // namespace

void check_captures(fact_report& all) {
  auto const queried = [&](cudaStream_t) { return text(query(all.event)); };
  auto const queried_elsewhere = [&](cudaStream_t on) {
    return in_another_thread([&] { return queried(on); });
  };
  during_a_capture(all, "cuEventQuery beside a global capture", "900, capture 901", queried);
  during_a_capture(all, "cuEventQuery beside a global capture, in another thread",
                   "900, capture 901", queried_elsewhere);
  during_a_capture(all, "cuEventQuery beside a thread-local capture, in another thread",
                   "0, capture 0", queried_elsewhere, cudaStreamCaptureModeThreadLocal);
  during_a_capture(all, "cuEventQuery beside a relaxed capture", "0, capture 0", queried,
                   cudaStreamCaptureModeRelaxed);
  void* memory = nullptr;
  during_a_capture(all, "cudaMalloc beside a global capture, in another thread", "900, capture 901",
                   [&](cudaStream_t) {
                     return in_another_thread([&] { return text(cudaMalloc(&memory, page)); });
                   });
  during_a_capture(
      all, "cudaHostAlloc beside a global capture, in another thread", "900, capture 901",
      [&](cudaStream_t) {
        return in_another_thread([&] { return text(cudaHostAlloc(&memory, page, 0)); });
      });
  check_relaxed(all);

  void* from = nullptr;
  void* to = nullptr;
  static_cast<void>(cudaHostAlloc(&from, page, 0));
  static_cast<void>(cudaMalloc(&to, page));
  CUevent created = nullptr;
  std::vector<named_call> const always_allowed{
      {"cudaPointerGetAttributes",
       [&] {
         cudaPointerAttributes found{};
         return text(cudaPointerGetAttributes(&found, from));
       }},
      {"cuEventCreate",
       [&] {
         static_cast<void>(cudaSetDevice(0));
         return text(driver("cuEventCreate", &created, unsigned{CU_EVENT_DEFAULT}));
       }},
      {"cudaMemcpyAsync on another stream",
       [&] { return text(cudaMemcpyAsync(to, from, page, cudaMemcpyDefault, all.other)); }},
      {"cuEventRecord on another stream", [&] { return text(record(all.event, all.other)); }},
      {"cuStreamWaitEvent on another stream", [&] { return text(make_wait(all.on, all.event)); }},
  };
  for (auto const& [name, answer] : always_allowed) {
    during_a_capture(all, std::string{name} + " beside a global capture", "0, capture 0",
                     [&, &answer = answer](cudaStream_t) { return in_another_thread(answer); });
  }
  destroy(created);
  static_cast<void>(cudaFreeHost(from));
  static_cast<void>(cudaFree(to));
}

void check_captured_streams(fact_report& all) {
  auto const relaxed = cudaStreamCaptureModeRelaxed;
  during_a_capture(all, "cuStreamIsCapturing of a captured stream", "status 1, capture 0",
                   [](cudaStream_t captured) { return capture_status(captured); });
  during_a_capture(all, "cuStreamIsCapturing of another stream", "status 0, capture 0",
                   [&](cudaStream_t) { return capture_status(all.other); });
  during_a_capture(
      all, "cuEventQuery of an event that was recorded in a captured stream", "0 907, capture 901",
      [](cudaStream_t captured) {
        auto* const recorded = make_event();
        auto const code = text(record(recorded, captured));
        auto const found = code + " " + text(query(recorded));
        destroy(recorded);
        return found;
      },
      relaxed);
  during_a_capture(
      all, "cudaStreamQuery of a captured stream", "900, capture 901",
      [](cudaStream_t captured) { return text(cudaStreamQuery(captured)); }, relaxed);
  during_a_capture(
      all, "cuStreamIsCapturing once the capture is invalid", "status 2, capture 901",
      [](cudaStream_t captured) {
        static_cast<void>(cudaStreamQuery(captured));
        return capture_status(captured);
      },
      relaxed);

  auto* const blocking = make_stream(cudaStreamDefault);
  static_cast<void>(cudaStreamBeginCapture(blocking, relaxed));
  auto const of_legacy = capture_status(nullptr);
  cudaGraph_t graph = nullptr;
  auto const end = cudaStreamEndCapture(blocking, &graph);
  all.add("cuStreamIsCapturing of the legacy stream beside the capture of a blocking one",
          "906, capture 0", of_legacy + ", capture " + text(end));
  destroy(blocking);

  // The end of this capture is not a fact, because the included stream was not joined.
  auto* const captured = make_stream();
  auto* const drawn = make_stream();
  auto* const recorded = make_event();
  static_cast<void>(cudaStreamBeginCapture(captured, relaxed));
  static_cast<void>(record(recorded, captured));
  auto const wait = make_wait(drawn, recorded);
  all.add("a stream that waits for a captured event is captured too", "0 status 1",
          text(wait) + " " + capture_status(drawn));
  static_cast<void>(cudaStreamEndCapture(captured, &graph));
  destroy(captured);
  destroy(drawn);
  destroy(recorded);
}

}  // namespace pyxfer::facts
