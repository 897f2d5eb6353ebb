#include "injection.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "capture.hpp"
#include "control.hpp"
#include "device.hpp"
#include "entry.hpp"

namespace pyxfer::hostrt {
namespace {

constexpr int all_devices = -1;

struct rule {
  std::size_t call;
  int calls_left;
  cudaError_t code;
  bool sticky;
  ordered_delay delay;
};

template <typename Value>
using for_each_call = std::array<std::atomic<Value>, all_calls.size()>;

struct injection {
  std::mutex mutex;
  std::vector<rule> rules;
  std::map<std::pair<int, int>, int> attributes;  ///< by attribute and device
  std::atomic<bool> has_rules{false};
  std::atomic<int> device_count{1};
  std::atomic<int> no_driver{cudaSuccess};
  for_each_call<bool> missing{};
  for_each_call<double> busy_s{};
  std::atomic<double> busy_s_of_a_copy{0};
  for_each_call<long> counts{};
};

injection& injected() {
  static auto& the_injection = *new injection;
  return the_injection;
}

/// These are about the calling thread, and not about the device that is current in it.
constexpr bool concerns_no_device(std::size_t call) {
  return call == index_of("cudaSetDevice") || call == index_of("cuCtxGetCurrent") ||
         call == index_of("cuCtxSetCurrent") ||
         call == index_of("cuThreadExchangeStreamCaptureMode");
}

orders apply_rules(std::size_t call) {
  orders ordered;
  bool sticky = false;
  {
    std::scoped_lock const lock{injected().mutex};
    auto const due = [&](rule& candidate) {
      if (candidate.call != call || --candidate.calls_left > 0) return false;
      if (candidate.code != cudaSuccess) ordered.code = candidate.code;
      if (!candidate.delay.none()) ordered.delay = candidate.delay;
      sticky = sticky || candidate.sticky;
      return true;
    };
    auto& rules = injected().rules;
    rules.erase(std::remove_if(rules.begin(), rules.end(), due), rules.end());
    injected().has_rules = !rules.empty();
  }
  if (sticky) lose(this_thread().device, ordered.code);
  return ordered;
}

cudaError_t standing_error(std::size_t call) {
  if (all_calls[call].kind == call_kind::always) return cudaSuccess;
  if (auto const code = no_driver(); code != cudaSuccess) return code;
  if (injected().missing[call]) return cudaErrorCallRequiresNewerDriver;
  return concerns_no_device(call) ? cudaSuccess : loss_code(this_thread().device);
}

void add_rule(std::string const& call, int nth, cudaError_t code, bool sticky, double seconds) {
  if (nth < 1) throw std::invalid_argument{"calls are counted from 1, not " + std::to_string(nth)};
  std::scoped_lock const lock{injected().mutex};
  injected().rules.push_back({known_call(call), nth, code, sticky, ordered_delay{seconds}});
  injected().has_rules = true;
}

/// A driver lets the calls of one context wait for each other.
void spend(double seconds) {
  static auto& of_device = *new std::array<std::mutex, max_devices>;
  if (seconds <= 0) return;
  auto const epoch = epoch_of(this_thread().device);
  std::scoped_lock const lock{of_device.at(static_cast<std::size_t>(epoch.device))};
  pause_until(steady::now() + as_duration(seconds), [&] { return !is_current(epoch); });
}

}  // namespace

orders orders_for(std::size_t call) {
  injected().counts[call].fetch_add(1, std::memory_order_relaxed);
  auto ordered = injected().has_rules ? apply_rules(call) : orders{};
  if (auto const standing = standing_error(call); standing != cudaSuccess) ordered.code = standing;
  return ordered;
}

admission admit(std::size_t call) {
  configure_from_environment();
  auto const kind = all_calls[call].kind;
  auto const ordered = orders_for(call);
  if (this_thread().in_host_function && kind != call_kind::always) {
    return {cudaErrorNotPermitted, ordered_delay{0}, false};
  }
  if (ordered.code == cudaSuccess && all_calls[call].unsafe_in_capture) {
    auto const code = captures().admit_unsafe();
    if (code != cudaSuccess) return {code, ordered_delay{0}, false};
  }
  auto const fine = ordered.code == cudaSuccess;
  if (fine && kind == call_kind::work) this_thread().has_context = true;
  if (fine) spend(injected().busy_s[call]);
  return {ordered.code, ordered.delay, fine || kind == call_kind::release};
}

void spend_time_of_copies(std::size_t count) {
  spend(injected().busy_s_of_a_copy * static_cast<double>(count));
}

bool is_missing(std::string const& symbol) {
  auto const of_runtime = "cuda" + symbol.substr(std::min<std::size_t>(2, symbol.size()));
  for (std::size_t call = 0; call < all_calls.size(); ++call) {
    auto const name = all_calls[call].name;
    if (injected().missing[call] && (name == symbol || name == of_runtime)) return true;
  }
  return false;
}

int device_count() noexcept { return injected().device_count; }

cudaError_t no_driver() noexcept {
  auto const code = static_cast<cudaError_t>(injected().no_driver.load());
  return code == cudaSuccess && device_count() == 0 ? cudaErrorNoDevice : code;
}

std::optional<int> ordered_attribute(int attribute, int device) {
  std::scoped_lock const lock{injected().mutex};
  auto const& known = injected().attributes;
  auto found = known.find({attribute, device});
  if (found == known.end()) found = known.find({attribute, all_devices});
  return found == known.end() ? std::nullopt : std::optional{found->second};
}

void reset_injection() {
  auto& all = injected();
  std::scoped_lock const lock{all.mutex};
  all.rules.clear();
  all.attributes.clear();
  all.has_rules = false;
  all.device_count = 1;
  all.no_driver = cudaSuccess;
  all.busy_s_of_a_copy = 0;
  for (std::size_t call = 0; call < all_calls.size(); ++call) {
    all.missing[call] = false;
    all.busy_s[call] = 0;
    all.counts[call] = 0;
  }
}

std::size_t known_call(std::string const& name) {
  try {
    return index_of(name);
  } catch (std::invalid_argument const&) {
    throw std::invalid_argument{"'" + name + "' is not a call of the host runtime"};
  }
}

int possible_device(int device) {
  if (device >= 0 && device < max_devices) return device;
  throw std::invalid_argument{"there is no device " + std::to_string(device)};
}

cudaError_t error_code(int code) {
  if (code >= 1 && code < cudaErrorApiFailureBase) return static_cast<cudaError_t>(code);
  throw std::invalid_argument{std::to_string(code) + " is not an error code"};
}

// --- what tests control --------------------------------------------------------------------------

void fail(std::string const& call, int nth, int code) {
  add_rule(call, nth, error_code(code), false, 0);
}

void fail_sticky(std::string const& call, int nth, int code) {
  add_rule(call, nth, error_code(code), true, 0);
}

void stall(std::string const& call, int nth, double seconds) {
  add_rule(call, nth, cudaSuccess, false, seconds);
}

void model_call(std::string const& call, double seconds) {
  injected().busy_s[known_call(call)] = seconds;
}

void model_issue(issue_model const& model) {
  model_call("cudaMemcpyAsync", model.call_s);
  model_call("cudaMemcpyBatchAsync", model.call_s);
  injected().busy_s_of_a_copy = model.descriptor_s;
}

void set_device_count(int count) {
  if (count < 0 || count > max_devices) {
    throw std::invalid_argument{"the host runtime has 0 to " + std::to_string(max_devices) +
                                " devices, not " + std::to_string(count)};
  }
  injected().device_count = count;
}

void set_missing(std::string const& symbol, bool missing) {
  injected().missing[known_call(symbol)] = missing;
}

void set_no_driver(int code) { injected().no_driver = code == 0 ? cudaSuccess : error_code(code); }

void set_attribute(int attribute, int value) {
  std::scoped_lock const lock{injected().mutex};
  injected().attributes[{attribute, all_devices}] = value;
}

void set_attribute_of(int device, int attribute, int value) {
  std::scoped_lock const lock{injected().mutex};
  injected().attributes[{attribute, possible_device(device)}] = value;
}

std::map<std::string, long> calls() {
  std::map<std::string, long> made;
  for (std::size_t call = 0; call < all_calls.size(); ++call) {
    auto const count = injected().counts[call].load();
    if (count != 0) made.emplace(all_calls[call].name, count);
  }
  return made;
}

}  // namespace pyxfer::hostrt
