#include <cuda_runtime_api.h>

#include <utility>

#include "entry.hpp"
#include "error_texts.hpp"
#include "loss.hpp"

using namespace pyxfer::hostrt;

namespace {

// As the real runtime says it.
constexpr char const* unrecognized = "unrecognized error code";

}  // namespace

// These two report an error without making it the last one, so they are no `runtime_call`.
cudaError_t cudaGetLastError() {
  return guarded<index_of("cudaGetLastError")>([] {
    auto const last = std::exchange(this_thread().last_error, cudaSuccess);
    return device_lost() ? loss_code() : last;
  });
}

cudaError_t cudaPeekAtLastError() {
  return guarded<index_of("cudaPeekAtLastError")>(
      [] { return device_lost() ? loss_code() : this_thread().last_error; });
}

char const* cudaGetErrorName(cudaError_t error) {
  (void)admit(index_of("cudaGetErrorName"));
  auto const* const known = find_error(error);
  return known == nullptr ? unrecognized : known->runtime_name;
}

char const* cudaGetErrorString(cudaError_t error) {
  (void)admit(index_of("cudaGetErrorString"));
  auto const* const known = find_error(error);
  return known == nullptr ? unrecognized : known->text;
}
