#include "control.hpp"

#include <charconv>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "activity_library.hpp"
#include "capture.hpp"
#include "device.hpp"
#include "entry.hpp"
#include "event.hpp"
#include "injection.hpp"
#include "link.hpp"
#include "memory.hpp"
#include "module.hpp"
#include "peer.hpp"
#include "stream_registry.hpp"
#include "waiting.hpp"

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

int possible_device(int device) {
  if (device < 0 || device >= max_devices) {
    throw std::invalid_argument{"there is no device " + std::to_string(device)};
  }
  return device;
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

void model_link(direction_model h2d, direction_model d2h) {
  for (int device = 0; device < max_devices; ++device) model_link_of(device, h2d, d2h);
}

void fail(std::string const& call, int nth, int code) {
  injected().add({known_call(call), counted(nth), error_code(code), false, ordered_delay{0}});
}

void fail_sticky(std::string const& call, int nth, int code) {
  injected().add({known_call(call), counted(nth), error_code(code), true, ordered_delay{0}});
}

void stall(std::string const& call, int nth, double seconds) {
  injected().add({known_call(call), counted(nth), cudaSuccess, false, ordered_delay{seconds}});
}

void release_stalls() {
  end_delays();
  end_hangs();
}

void lose_device(int code) {
  auto const lost_with = error_code(code);
  for (int device = 0; device < max_devices; ++device) lose(device, lost_with);
}

void lose_one_device(int device, int code) { lose(possible_device(device), error_code(code)); }

void hang_device(int device) { set_hanging(possible_device(device)); }

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

void set_attribute(int attribute, int value) { injected().set_attribute(-1, attribute, value); }

void set_attribute_of(int device, int attribute, int value) {
  injected().set_attribute(possible_device(device), attribute, value);
}

void model_link_of(int device, direction_model h2d, direction_model d2h) {
  link().set({-1, possible_device(device)}, h2d);
  link().set({device, -1}, d2h);
}

void model_pair(int source, int destination, direction_model model) {
  link().set({possible_device(source), possible_device(destination)}, model);
}

void model_issue(issue_model const& model) { link().set_issue(model); }

void refuse_peer(int device, int peer, bool refused) {
  peers().refuse(possible_device(device), possible_device(peer), refused);
}

void begin_capture(std::uintptr_t stream, std::string const& mode) {
  auto const code =
      cudaStreamBeginCapture(reinterpret_cast<cudaStream_t>(stream), capture_mode(mode));
  if (code != cudaSuccess) {
    throw std::invalid_argument{std::string{"the capture cannot begin: "} + cudaGetErrorName(code)};
  }
}

int end_capture(std::uintptr_t stream) {
  cudaGraph_t graph = nullptr;
  return cudaStreamEndCapture(reinterpret_cast<cudaStream_t>(stream), &graph);
}

std::vector<allocation> allocated() {
  std::vector<allocation> live;
  for (auto const& region : memory().all()) {
    live.push_back({name_of(region.kind), region.address, region.bytes});
  }
  for (auto const handle : streams().handles()) live.push_back({"stream", handle, 0});
  for (auto const handle : events().handles()) live.push_back({"event", handle, 0});
  for (auto const handle : modules().handles()) live.push_back({"module", handle, 0});
  return live;
}

std::map<std::string, long> calls() { return injected().counts(); }

void reset() {
  // If this reset precedes the first call, the environment's orders must not be added after it.
  configure_from_environment();
  injected().reset();
  captures().forget_all();
  release_stalls();
  restore_devices();
  restore_contexts();
  link().reset();
  peers().reset();
  reset_activity();
  this_thread() = {};
}

namespace {

using order = std::function<void()>;
using fields = std::vector<std::string>;

fields split(std::string_view text, char separator) {
  fields parts;
  while (true) {
    auto const end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <typename Number>
Number number_from(std::string const& text, Number least, Number most) {
  Number number{};
  auto const* const end = text.data() + text.size();
  auto const [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stop != end) {
    throw std::invalid_argument{"'" + text + "' is not a valid number"};
  }
  if (!(number >= least && number <= most)) {
    throw std::invalid_argument{"'" + text + "' is out of range"};
  }
  return number;
}

constexpr double longest_s = 1e6;
constexpr double fastest_bytes_per_s = 1e15;
constexpr int most_cupti_code = 999;
constexpr int most_attribute = 999;
constexpr int most_calls = 1'000'000'000;

int code_from(std::string const& text) { return number_from(text, 1, cudaErrorApiFailureBase - 1); }
int nth_from(std::string const& text) { return number_from(text, 1, most_calls); }
double seconds_from(std::string const& text) { return number_from(text, 0.0, longest_s); }
double rate_from(std::string const& text) { return number_from(text, 0.0, fastest_bytes_per_s); }

std::string call_from(std::string const& text) {
  try {
    (void)index_of(text);
  } catch (std::invalid_argument const&) {
    throw std::invalid_argument{"'" + text + "' is not a call of the host runtime"};
  }
  return text;
}

void expect_fields(fields const& values, std::size_t count) {
  if (values.size() == count) return;
  throw std::invalid_argument{"it takes " + std::to_string(count) + " values between colons, not " +
                              std::to_string(values.size())};
}

order read_fail(fields const& values) {
  expect_fields(values, 3);
  return [call = call_from(values[0]), nth = nth_from(values[1]), code = code_from(values[2])] {
    fail(call, nth, code);
  };
}

order read_lose(fields const& values) {
  if (values.size() == 1) return [code = code_from(values[0])] { lose_device(code); };
  expect_fields(values, 3);
  return [call = call_from(values[0]), nth = nth_from(values[1]), code = code_from(values[2])] {
    fail_sticky(call, nth, code);
  };
}

order read_stall(fields const& values) {
  expect_fields(values, 3);
  return [call = call_from(values[0]), nth = nth_from(values[1]), s = seconds_from(values[2])] {
    stall(call, nth, s);
  };
}

direction_model direction_from(fields const& values, std::size_t first) {
  return {rate_from(values.at(first)), seconds_from(values.at(first + 1))};
}

order read_link(fields const& values) {
  expect_fields(values, 4);
  return
      [h2d = direction_from(values, 0), d2h = direction_from(values, 2)] { model_link(h2d, d2h); };
}

order read_issue(fields const& values) {
  expect_fields(values, 2);
  return [model = issue_model{seconds_from(values[0]), seconds_from(values[1])}] {
    model_issue(model);
  };
}

order read_missing(fields const& values) {
  expect_fields(values, 1);
  return [symbol = call_from(values[0])] { set_missing(symbol, true); };
}

order read_no_driver(fields const& values) {
  expect_fields(values, 1);
  return [code = code_from(values[0])] { set_no_driver(code); };
}

order read_devices(fields const& values) {
  expect_fields(values, 1);
  return [count = number_from(values[0], 0, max_devices)] { set_device_count(count); };
}

int device_from(std::string const& text) { return number_from(text, 0, max_devices - 1); }

order read_link_of(fields const& values) {
  expect_fields(values, 5);
  return [device = device_from(values[0]), h2d = direction_from(values, 1),
          d2h = direction_from(values, 3)] { model_link_of(device, h2d, d2h); };
}

order read_pair(fields const& values) {
  expect_fields(values, 4);
  return [source = device_from(values[0]), destination = device_from(values[1]),
          model = direction_from(values, 2)] { model_pair(source, destination, model); };
}

order read_no_peer(fields const& values) {
  expect_fields(values, 2);
  return [device = device_from(values[0]), peer = device_from(values[1])] {
    refuse_peer(device, peer, true);
  };
}

order read_attribute(fields const& values) {
  expect_fields(values, 2);
  return [number = number_from(values[0], 1, most_attribute),
          value = number_from(values[1], -1, most_calls)] { set_attribute(number, value); };
}

order read_no_trace(fields const& values) {
  expect_fields(values, 1);
  return [code = number_from(values[0], 1, most_cupti_code)] { refuse_activity(code); };
}

std::map<std::string, order (*)(fields const&)> const& readers() {
  static auto const& known = *new std::map<std::string, order (*)(fields const&)>{
      {"fail", read_fail},       {"lose", read_lose},         {"stall", read_stall},
      {"link", read_link},       {"missing", read_missing},   {"no-driver", read_no_driver},
      {"devices", read_devices}, {"no-trace", read_no_trace}, {"link-of", read_link_of},
      {"pair", read_pair},       {"no-peer", read_no_peer},   {"attribute", read_attribute},
      {"issue", read_issue},
  };
  return known;
}

order read_order(std::string const& text) {
  auto const equals = text.find('=');
  auto const found = readers().find(text.substr(0, equals));
  if (equals == std::string::npos || found == readers().end()) {
    throw std::invalid_argument{
        "'" + text +
        "' is none of fail=, lose=, stall=, link=, missing=, no-driver=, devices=, "
        "no-trace=, link-of=, pair=, no-peer=, attribute=, issue="};
  }
  try {
    return found->second(split(text.substr(equals + 1), ':'));
  } catch (std::invalid_argument const& problem) {
    throw std::invalid_argument{"'" + text + "': " + problem.what()};
  }
}

void read_environment() {
  auto const* const line = std::getenv("PYXFER_HOSTRT");
  if (line == nullptr) return;
  try {
    configure(line);
  } catch (std::invalid_argument const& problem) {
    std::cerr << "PYXFER_HOSTRT cannot be read, so every CUDA call will fail: " << problem.what()
              << '\n';
    injected().set_misconfigured();
  }
}

}  // namespace

void configure(std::string const& line) {
  std::vector<order> orders;
  for (auto const& text : split(line, ';')) {
    if (!text.empty()) orders.push_back(read_order(text));
  }
  for (auto const& carry_out : orders) carry_out();
}

void configure_from_environment() {
  static std::once_flag read;
  std::call_once(read, read_environment);
}

}  // namespace pyxfer::hostrt
