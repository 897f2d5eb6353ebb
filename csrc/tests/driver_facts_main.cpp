#include "driver_facts.hpp"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <iostream>

/// Prints one fact per line, with tabs between its fields. Without a device it prints the reason
/// and exits with 3.
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
  pyxfer::facts::check_driver(reset, [](pyxfer::facts::fact const& reported) {
    std::cout << reported.name << '\t' << reported.relied_on << '\t' << reported.found << std::endl;
  });
  return 0;
}
