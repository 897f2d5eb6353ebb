#include "driver_facts.hpp"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <iostream>

/// Prints a fact a line, its fields separated by tabs; ends with 3 and the reason where there is no
/// device.
int main() {
  constexpr unsigned int longest_s = 30;
  constexpr int no_device = 3;
  ::alarm(longest_s);
  int count = 0;
  if (auto const code = cudaGetDeviceCount(&count); code != cudaSuccess) {
    std::cout << cudaGetErrorString(code) << '\n';
    return no_device;
  }
  auto const reset = [] { static_cast<void>(cudaDeviceReset()); };
  pyxfer::facts::ask_driver(reset, [](pyxfer::facts::fact const& each) {
    std::cout << each.name << '\t' << each.relied_on << '\t' << each.found << std::endl;
  });
  return 0;
}
