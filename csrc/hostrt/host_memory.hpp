#pragma once

#include <cstddef>

#include "numa/memory.hpp"

namespace pyxfer::hostrt {

using pyxfer::memory_of_machine;

/// Resident zeroed pages, or null when there are not that many to be had.
[[nodiscard]] void* map_pages(std::size_t bytes);

void unmap_pages(void* address, std::size_t bytes) noexcept;

}  // namespace pyxfer::hostrt
