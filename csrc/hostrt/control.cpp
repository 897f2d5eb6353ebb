#include "control.hpp"

#include <stdexcept>

#include "activity_control.hpp"
#include "capture.hpp"
#include "configuration.hpp"
#include "delay.hpp"
#include "device.hpp"
#include "event.hpp"
#include "injection.hpp"
#include "link.hpp"
#include "loss.hpp"
#include "memory_registry.hpp"
#include "stream_registry.hpp"
#include "thread_state.hpp"

namespace pyxfer::hostrt {
namespace {

std::size_t known_call(std::string const& name) {
  try {
    return index_of(name);
  } catch (std::invalid_argument const&) {
    throw std::invalid_argument{"the host runtime has no call '" + name + "'"};
  }
}

int counted(int nth) {
  if (nth < 1) throw std::invalid_argument{"calls are counted from 1, not " + std::to_string(nth)};
  return nth;
}

cudaError_t error_code(int code) {
  if (code < 1 || code >= cudaErrorApiFailureBase) {
    throw std::invalid_argument{std::to_string(code) + " is not an error code"};
  }
  return static_cast<cudaError_t>(code);
}

cudaStreamCaptureMode capture_mode(std::string const& word) {
  if (word == "global") return cudaStreamCaptureModeGlobal;
  if (word == "thread_local") return cudaStreamCaptureModeThreadLocal;
  if (word == "relaxed") return cudaStreamCaptureModeRelaxed;
  throw std::invalid_argument{"'" + word + "' is not a capture mode"};
}

char const* name_of(memory_kind kind) {
  switch (kind) {
    case memory_kind::device: return "device";
    case memory_kind::pinned: return "pinned";
    case memory_kind::write_combined: return "write-combined";
    case memory_kind::registered: break;
  }
  return "registered";
}

}  // namespace

void model_link(direction_model h2d, direction_model d2h) { link().set(h2d, d2h); }

void fail(std::string const& call, int nth, int code) {
  injected().add({known_call(call), counted(nth), error_code(code), false, ordered_delay{0}});
}

void fail_sticky(std::string const& call, int nth, int code) {
  injected().add({known_call(call), counted(nth), error_code(code), true, ordered_delay{0}});
}

void stall(std::string const& call, int nth, double seconds) {
  injected().add({known_call(call), counted(nth), cudaSuccess, false, ordered_delay{seconds}});
}

void release_stalls() { end_delays(); }

void lose_device(int code) { lose(error_code(code)); }

void destroy_context(int device) {
  if (!is_device(device)) {
    throw std::invalid_argument{"there is no device " + std::to_string(device)};
  }
  set_context_destroyed(device);
}

void set_device_count(int count) {
  if (count < 0 || count > max_devices) {
    throw std::invalid_argument{"the host runtime has 0 to " + std::to_string(max_devices) +
                                " devices, not " + std::to_string(count)};
  }
  injected().set_device_count(count);
}

void set_missing(std::string const& symbol, bool missing) {
  injected().set_missing(known_call(symbol), missing);
}

void set_no_driver(int code) {
  injected().set_no_driver(code == 0 ? cudaSuccess : error_code(code));
}

void set_attribute(int attribute, int value) { injected().set_attribute(attribute, value); }

void begin_capture(std::uintptr_t stream, std::string const& mode) {
  auto const code =
      cudaStreamBeginCapture(reinterpret_cast<cudaStream_t>(stream), capture_mode(mode));
  if (code != cudaSuccess) {
    throw std::invalid_argument{std::string{"the capture does not begin: "} +
                                cudaGetErrorName(code)};
  }
}

int end_capture(std::uintptr_t stream) {
  cudaGraph_t graph = nullptr;
  return cudaStreamEndCapture(reinterpret_cast<cudaStream_t>(stream), &graph);
}

std::vector<allocation> allocated() {
  std::vector<allocation> live;
  for (auto const& each : memory().all()) {
    live.push_back({name_of(each.kind), each.address, each.bytes});
  }
  for (auto const handle : streams().handles()) live.push_back({"stream", handle, 0});
  for (auto const handle : events().handles()) live.push_back({"event", handle, 0});
  return live;
}

std::map<std::string, long> calls() { return injected().counts(); }

void reset() {
  // Else the orders of the environment would come after a reset that precedes the first call.
  configure_from_environment();
  injected().reset();
  captures().forget_all();
  end_delays();
  restore_device();
  restore_contexts();
  link().set({0, 0}, {0, 0});
  reset_activity();
  this_thread() = {};
}

}  // namespace pyxfer::hostrt
