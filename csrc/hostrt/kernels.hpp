#pragma once

#include <memory>

#include "ptx.hpp"
#include "stream.hpp"

namespace pyxfer::hostrt {

/// Queues a kernel, which is never freed. Its parameters are read now.
void queue_kernel(ptx_entry const& kernel, unsigned int blocks, unsigned int threads,
                  std::shared_ptr<stream> const& on, void** parameters, ordered_delay const& delay);

}  // namespace pyxfer::hostrt
