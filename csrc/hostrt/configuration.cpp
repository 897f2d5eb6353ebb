#include "configuration.hpp"

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

#include "calls.hpp"
#include "control.hpp"
#include "injection.hpp"

namespace pyxfer::hostrt {
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
    throw std::invalid_argument{"'" + text + "' is not a number of the right sort"};
  }
  if (!(number >= least && number <= most)) {
    throw std::invalid_argument{"'" + text + "' is out of range"};
  }
  return number;
}

constexpr double longest_s = 1e6;
constexpr double fastest_bytes_per_s = 1e15;
constexpr int most_cupti_code = 999;
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

order read_link(fields const& values) {
  expect_fields(values, 4);
  return [h2d = direction_model{rate_from(values[0]), seconds_from(values[1])},
          d2h = direction_model{rate_from(values[2]), seconds_from(values[3])}] {
    model_link(h2d, d2h);
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

order read_no_trace(fields const& values) {
  expect_fields(values, 1);
  return [code = number_from(values[0], 1, most_cupti_code)] { refuse_activity(code); };
}

std::map<std::string, order (*)(fields const&)> const& readers() {
  static auto const& known = *new std::map<std::string, order (*)(fields const&)>{
      {"fail", read_fail},       {"lose", read_lose},         {"stall", read_stall},
      {"link", read_link},       {"missing", read_missing},   {"no-driver", read_no_driver},
      {"devices", read_devices}, {"no-trace", read_no_trace},
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
        "no-trace="};
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
  for (auto const& each : orders) each();
}

void configure_from_environment() {
  static std::once_flag read;
  std::call_once(read, read_environment);
}

}  // namespace pyxfer::hostrt
