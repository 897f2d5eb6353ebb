#pragma once

#include <memory>

#include "module.hpp"
#include "stream.hpp"

namespace pyxfer::hostrt {

/// Queues a kernel of csrc/links/kernel_text.cpp as a C++ function that does the same. As on a
/// device, an address that it may not access loses the device when the kernel runs.
void queue_kernel(kernel_kind kind, std::shared_ptr<stream> const& on, void** parameters,
                  ordered_delay const& delay);

}  // namespace pyxfer::hostrt
