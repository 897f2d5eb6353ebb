#pragma once

#include <functional>
#include <string>
#include <vector>

/// What the engine assumes of the driver, asked of whatever runtime this is linked with: of
/// NVIDIA's by driver_facts_main.cpp, and of the host runtime by driver_facts_test.cpp. A fact that
/// differs on a new driver means that the engine, or the host runtime, has to change.
namespace pyxfer::facts {

struct fact {
  std::string name;
  std::string relied_on;
  std::string found;
};

/// Every fact, within a few seconds. `destroy_context` is called before the last ones, and takes
/// the place of cudaDeviceReset.
[[nodiscard]] std::vector<fact> ask_driver(std::function<void()> const& destroy_context);

}  // namespace pyxfer::facts
