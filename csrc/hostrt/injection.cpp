#include "injection.hpp"

#include <algorithm>

#include "device.hpp"
#include "entry.hpp"

namespace pyxfer::hostrt {
namespace {

constexpr int all_devices = -1;

/// These are about the calling thread, and not about the device that is current in it.
constexpr bool concerns_no_device(std::size_t call) {
  return call == index_of("cudaSetDevice") || call == index_of("cuCtxGetCurrent") ||
         call == index_of("cuCtxSetCurrent") ||
         call == index_of("cuThreadExchangeStreamCaptureMode");
}

}  // namespace

orders injection::enter(std::size_t call) {
  counts_[call].fetch_add(1, std::memory_order_relaxed);
  auto ordered = has_rules_ ? apply_rules(call) : orders{};
  if (auto const standing = standing_error(call); standing != cudaSuccess) ordered.code = standing;
  return ordered;
}

orders injection::apply_rules(std::size_t call) {
  orders ordered;
  bool sticky = false;
  {
    std::scoped_lock const lock{mutex_};
    auto const due = [&](rule& candidate) {
      if (candidate.call != call || --candidate.calls_left > 0) return false;
      if (candidate.code != cudaSuccess) ordered.code = candidate.code;
      if (!candidate.delay.none()) ordered.delay = candidate.delay;
      sticky = sticky || candidate.sticky;
      return true;
    };
    rules_.erase(std::remove_if(rules_.begin(), rules_.end(), due), rules_.end());
    has_rules_ = !rules_.empty();
  }
  if (sticky) lose(this_thread().device, ordered.code);
  return ordered;
}

cudaError_t injection::standing_error(std::size_t call) const {
  if (misconfigured_) return cudaErrorInvalidValue;
  if (all_calls[call].kind == call_kind::always) return cudaSuccess;
  if (auto const code = no_driver(); code != cudaSuccess) return code;
  if (has_missing_) {
    std::scoped_lock const lock{mutex_};
    if (missing_.count(call) != 0) return cudaErrorCallRequiresNewerDriver;
  }
  return concerns_no_device(call) ? cudaSuccess : loss_code(this_thread().device);
}

void injection::add(rule const& added) {
  std::scoped_lock const lock{mutex_};
  rules_.push_back(added);
  has_rules_ = true;
}

void injection::set_missing(std::size_t call, bool missing) {
  std::scoped_lock const lock{mutex_};
  if (missing) {
    missing_.insert(call);
  } else {
    missing_.erase(call);
  }
  has_missing_ = !missing_.empty();
}

bool injection::missing(std::string const& symbol) const {
  std::scoped_lock const lock{mutex_};
  return std::any_of(missing_.begin(), missing_.end(),
                     [&](std::size_t call) { return all_calls[call].name == symbol; });
}

cudaError_t injection::no_driver() const noexcept {
  if (auto const code = static_cast<cudaError_t>(no_driver_.load()); code != cudaSuccess)
    return code;
  return device_count_ == 0 ? cudaErrorNoDevice : cudaSuccess;
}

void injection::set_attribute(int device, int attribute, int value) {
  std::scoped_lock const lock{mutex_};
  attributes_[{attribute, std::max(device, all_devices)}] = value;
}

std::optional<int> injection::attribute(int attribute, int device) const {
  std::scoped_lock const lock{mutex_};
  auto found = attributes_.find({attribute, device});
  if (found == attributes_.end()) found = attributes_.find({attribute, all_devices});
  return found == attributes_.end() ? std::nullopt : std::optional{found->second};
}

std::map<std::string, long> injection::counts() const {
  std::map<std::string, long> made;
  for (std::size_t call = 0; call < all_calls.size(); ++call) {
    if (auto const count = counts_[call].load(); count != 0) {
      made.emplace(all_calls[call].name, count);
    }
  }
  return made;
}

void injection::reset() {
  std::scoped_lock const lock{mutex_};
  rules_.clear();
  missing_.clear();
  attributes_.clear();
  has_rules_ = false;
  has_missing_ = false;
  misconfigured_ = false;
  device_count_ = 1;
  no_driver_ = cudaSuccess;
  for (auto& count : counts_) count = 0;
}

injection& injected() {
  static auto& the_injection = *new injection;
  return the_injection;
}

}  // namespace pyxfer::hostrt
