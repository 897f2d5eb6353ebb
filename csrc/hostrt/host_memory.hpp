#pragma once

#include <cstddef>
#include <cstdint>

#include "numa/memory.hpp"

namespace pyxfer::hostrt {

using pyxfer::memory_of_machine;

/// Resident zeroed pages, or null when there are not that many to be had.
[[nodiscard]] void* map_pages(std::size_t bytes);

/// Whether every page of a range is mapped, and may be written unless `read_only`.
[[nodiscard]] bool is_mapped(std::uintptr_t begin, std::size_t bytes, bool read_only);

void unmap_pages(void* address, std::size_t bytes) noexcept;

}  // namespace pyxfer::hostrt
