#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <utility>

#include "device.hpp"
#include "entry.hpp"

namespace pyxfer::hostrt {
namespace {

constexpr std::size_t most_codes = 1000;

/// The name of an enumerator as the compiler writes it; empty for a number without a name.
template <auto Enumerator>
constexpr std::string_view written_name() {
  constexpr auto is_part = [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  };
  constexpr std::string_view before = "Enumerator = ";
  char const* const whole = __PRETTY_FUNCTION__;
  std::string_view name{whole};
  name.remove_prefix(name.find(before) + before.size());
  std::size_t length = 0;
  while (is_part(name[length])) ++length;
  return name.substr(0, length);
}

template <auto Enumerator>
struct ended_name {
  static constexpr auto text = [] {
    constexpr auto name = written_name<Enumerator>();
    std::array<char, name.size() + 1> made{};
    for (std::size_t i = 0; i < name.size(); ++i) made[i] = name[i];
    return made;
  }();
};

template <typename Enum, std::size_t Code>
constexpr char const* name_or_null() {
  constexpr auto value = static_cast<Enum>(Code);
  if constexpr (written_name<value>().empty())
    return nullptr;
  else
    return ended_name<value>::text.data();
}

template <typename Enum, std::size_t... Codes>
constexpr std::array<char const*, sizeof...(Codes)> names_in(std::index_sequence<Codes...>) {
  return {name_or_null<Enum, Codes>()...};
}

constexpr auto runtime_names = names_in<cudaError_t>(std::make_index_sequence<most_codes>{});
constexpr auto driver_names = names_in<CUresult>(std::make_index_sequence<most_codes>{});

struct code_text {
  int code;
  char const* text;
};

/// The texts of the 12.9 runtime for what this runtime returns, and for what tests order most.
constexpr std::array known_texts{
    code_text{0, "no error"},
    code_text{1, "invalid argument"},
    code_text{2, "out of memory"},
    code_text{3, "initialization error"},
    code_text{21, "invalid copy direction for memcpy"},
    code_text{35, "CUDA driver version is insufficient for CUDA runtime version"},
    code_text{36, "API call is not supported in the installed CUDA driver"},
    code_text{46, "CUDA-capable device(s) is/are busy or unavailable"},
    code_text{100, "no CUDA-capable device is detected"},
    code_text{101, "invalid device ordinal"},
    code_text{200, "device kernel image is invalid"},
    code_text{201, "invalid device context"},
    code_text{214, "uncorrectable ECC error encountered"},
    code_text{217, "peer access is not supported between these two devices"},
    code_text{221, "PTX JIT compiler library not found"},
    code_text{304, "OS call failed or operation not supported on this OS"},
    code_text{400, "invalid resource handle"},
    code_text{500, "named symbol not found"},
    code_text{600, "device not ready"},
    code_text{700, "an illegal memory access was encountered"},
    code_text{704, "peer access is already enabled"},
    code_text{705, "peer access has not been enabled"},
    code_text{709, "context is destroyed"},
    code_text{711, "peer mapping resources exhausted"},
    code_text{712, "part or all of the requested memory range is already mapped"},
    code_text{713, "pointer does not correspond to a registered memory region"},
    code_text{719, "unspecified launch failure"},
    code_text{800, "operation not permitted"},
    code_text{801, "operation not supported"},
    code_text{900, "operation not permitted when stream is capturing"},
    code_text{901, "operation failed due to a previous error during capture"},
    code_text{907, "operation not permitted on an event last recorded in a capturing stream"},
    code_text{999, "unknown error"},
};

}  // namespace

error_text find_error(int code) noexcept {
  auto const index = static_cast<std::size_t>(code);
  if (index >= most_codes) return {};
  auto const* const known =
      std::find_if(known_texts.begin(), known_texts.end(),
                   [=](code_text const& candidate) { return candidate.code == code; });
  // Other codes have their names as texts.
  auto const* const text = known == known_texts.end() ? runtime_names[index] : known->text;
  return {runtime_names[index], driver_names[index], text};
}

}  // namespace pyxfer::hostrt

using namespace pyxfer::hostrt;

namespace {

char const* or_unrecognized(char const* known) {
  return known == nullptr ? "unrecognized error code" : known;  // the real runtime's text
}

}  // namespace

// Not `runtime_call`, because these two return an error without storing it as the last one.
cudaError_t cudaGetLastError() {
  return guarded<index_of("cudaGetLastError")>([] {
    auto const last = std::exchange(this_thread().last_error, cudaSuccess);
    auto const lost = loss_code(this_thread().device);
    return lost != cudaSuccess ? lost : last;
  });
}

cudaError_t cudaPeekAtLastError() {
  return guarded<index_of("cudaPeekAtLastError")>([] {
    auto const lost = loss_code(this_thread().device);
    return lost != cudaSuccess ? lost : this_thread().last_error;
  });
}

char const* cudaGetErrorName(cudaError_t error) {
  (void)admit(index_of("cudaGetErrorName"));
  return or_unrecognized(find_error(error).runtime_name);
}

char const* cudaGetErrorString(cudaError_t error) {
  (void)admit(index_of("cudaGetErrorString"));
  return or_unrecognized(find_error(error).text);
}
