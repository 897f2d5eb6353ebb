#include "control.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "activity.hpp"
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

void release_stalls() {
  end_delays();
  end_hangs();
}

void model_link_of(int device, direction_model h2d, direction_model d2h) {
  link().set({-1, possible_device(device)}, h2d);
  link().set({device, -1}, d2h);
}

void model_pair(int source, int destination, direction_model model) {
  link().set({possible_device(source), possible_device(destination)}, model);
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

void reset() {
  // If this reset precedes the first call, the environment's orders must not be added after it.
  configure_from_environment();
  reset_injection();
  set_connections(0);
  captures().forget_all();
  release_stalls();
  restore_devices();
  link().reset();
  reset_peers();
  reset_activity();
  this_thread() = {};
}

namespace {

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

template <typename Value>
Value read(std::string const& field) {
  if constexpr (std::is_same_v<Value, std::string>) {
    return field;
  } else {
    Value number{};
    auto const* const end = field.data() + field.size();
    auto const [stop, error] = std::from_chars(field.data(), end, number);
    if (error == std::errc{} && stop == end && number >= 0) return number;
    throw std::invalid_argument{"'" + field + "' is not a number from 0 on"};
  }
}

template <typename... Arguments, std::size_t... I>
void call(void (*function)(Arguments...), fields const& values, std::index_sequence<I...> /*all*/) {
  function(read<std::decay_t<Arguments>>(values[I])...);
}

struct order {
  template <typename... Arguments>
  order(char const* its_name, void (*function)(Arguments...))
      : name{its_name}, carry_out{[function](fields const& values) {
          if (values.size() != sizeof...(Arguments)) {
            throw std::invalid_argument{"it takes " + std::to_string(sizeof...(Arguments)) +
                                        " values between colons, not " +
                                        std::to_string(values.size())};
          }
          call(function, values, std::index_sequence_for<Arguments...>{});
        }} {}

  std::string name;
  std::function<void(fields const&)> carry_out;
};

/// The orders that the variable PYXFER_HOSTRT can hold, and the functions that carry them out.
std::vector<order> const& known_orders() {
  static auto const& known = *new std::vector<order>{
      {"fail", fail},
      {"lose", fail_sticky},
      {"stall", stall},
      {"devices", set_device_count},
      {"connections", set_connections},
      {"link", +[](double h2d, double h2d_s, double d2h,
                   double d2h_s) { model_link({h2d, h2d_s}, {d2h, d2h_s}); }},
      {"link-of", +[](int device, double h2d, double h2d_s, double d2h,
                      double d2h_s) { model_link_of(device, {h2d, h2d_s}, {d2h, d2h_s}); }},
  };
  return known;
}

void carry_out(std::string const& text) {
  auto const equals = std::min(text.find('='), text.size());
  auto const found =
      std::find_if(known_orders().begin(), known_orders().end(),
                   [&](order const& known) { return text.compare(0, equals, known.name) == 0; });
  try {
    if (found == known_orders().end() || equals == text.size()) {
      throw std::invalid_argument{"there is no such order"};
    }
    found->carry_out(split(text.substr(equals + 1), ':'));
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
    set_no_driver(cudaErrorInvalidValue);
  }
}

}  // namespace

void configure(std::string const& line) {
  for (auto const& text : split(line, ';')) {
    if (!text.empty()) carry_out(text);
  }
}

void configure_from_environment() {
  static std::once_flag read;
  std::call_once(read, read_environment);
}

}  // namespace pyxfer::hostrt
