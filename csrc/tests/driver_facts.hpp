#pragma once

#include <functional>
#include <string>

/// What the engine assumes of the driver, asked of whatever runtime this is linked with: of
/// NVIDIA's by driver_facts_main.cpp, and of the host runtime by driver_facts_test.cpp. A fact that
/// differs on a new driver means that the engine, or the host runtime, has to change.
namespace pyxfer::facts {

struct fact {
  std::string name;
  std::string relied_on;
  std::string found;
};

/// Reports every fact as soon as it is known, within a few seconds in all. `destroy_context` is
/// called before the last ones, and takes the place of cudaDeviceReset.
void ask_driver(std::function<void()> const& destroy_context,
                std::function<void(fact const&)> const& report);

}  // namespace pyxfer::facts
