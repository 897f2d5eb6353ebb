#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "activity.hpp"

namespace pyxfer::hostrt {

/// The name of a callback id as CUPTI gives it; null behind the last. The ids of both domains are
/// those of `all_calls`, from 1: as a driver call that of a runtime call is the one it makes.
[[nodiscard]] char const* callback_name(cupti::domain of, std::uint32_t callback);

/// Whether calls of that id are recorded, until all are switched on again; without effect while the
/// domain is off, as in the real library once there is a context.
void enable_call(cupti::domain of, std::uint32_t callback, bool enabled);
/// Whether all calls of the domain are recorded.
void enable_all_calls(cupti::domain of, bool enabled);

/// One call, from before its body to behind it. While it lives this thread's work bears its
/// correlation.
class recorded_call {
 public:
  explicit recorded_call(std::size_t call) noexcept;
  ~recorded_call();
  recorded_call(recorded_call const&) = delete;
  recorded_call& operator=(recorded_call const&) = delete;
  recorded_call(recorded_call&&) = delete;
  recorded_call& operator=(recorded_call&&) = delete;

  void returned(cudaError_t code) const noexcept;

 private:
  std::size_t call_;
  steady::time_point begin_;
};

}  // namespace pyxfer::hostrt
