#pragma once

#include <functional>
#include <string>

/// The engine's assumptions about the driver. driver_facts_main.cpp checks NVIDIA's runtime, and
/// driver_facts_test.cpp the host runtime. If a fact differs with a new driver, the engine or the
/// host runtime has to change.
namespace pyxfer::facts {

struct fact {
  std::string name;
  std::string relied_on;
  std::string found;
};

/// Reports every fact as soon as it is known; all of them take a few seconds. `destroy_context` is
/// called before the last facts, instead of cudaDeviceReset.
void check_driver(std::function<void()> const& destroy_context,
                  std::function<void(fact const&)> const& report);

}  // namespace pyxfer::facts
