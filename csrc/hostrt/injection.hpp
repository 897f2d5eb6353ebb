#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "calls.hpp"
#include "delay.hpp"

namespace pyxfer::hostrt {

inline constexpr int max_devices = 16;

/// What a test ordered for one call.
struct orders {
  cudaError_t code = cudaSuccess;
  ordered_delay delay{0};
};

/// Counts the calls, and knows which of them are to fail or to stall.
class injection {
 public:
  struct rule {
    std::size_t call;
    int calls_left;
    cudaError_t code;
    bool sticky;
    ordered_delay delay;
  };

  /// Counts one call and returns what was ordered for it.
  [[nodiscard]] orders enter(std::size_t call);

  void add(rule const& added);
  void set_missing(std::size_t call, bool missing);
  [[nodiscard]] bool missing(std::string const& symbol) const;

  void set_device_count(int count) noexcept { device_count_ = count; }
  [[nodiscard]] int device_count() const noexcept { return device_count_; }
  /// Every call returns `code`; cudaSuccess ends it.
  void set_no_driver(cudaError_t code) noexcept { no_driver_ = code; }
  [[nodiscard]] cudaError_t no_driver() const noexcept;
  void set_attribute(int attribute, int value);
  /// The value ordered for a device attribute, if one was.
  [[nodiscard]] std::optional<int> attribute(int attribute) const;
  void set_misconfigured() noexcept { misconfigured_ = true; }

  [[nodiscard]] std::map<std::string, long> counts() const;
  void reset();

 private:
  [[nodiscard]] orders apply_rules(std::size_t call);
  [[nodiscard]] cudaError_t standing_error(std::size_t call) const;

  mutable std::mutex mutex_;
  std::vector<rule> rules_;
  std::set<std::size_t> missing_;
  std::map<int, int> attributes_;
  std::atomic<bool> has_rules_{false};
  std::atomic<bool> has_missing_{false};
  std::atomic<bool> misconfigured_{false};
  std::atomic<int> device_count_{1};
  std::atomic<int> no_driver_{cudaSuccess};
  std::array<std::atomic<long>, all_calls.size()> counts_{};
};

[[nodiscard]] injection& injected();

}  // namespace pyxfer::hostrt
