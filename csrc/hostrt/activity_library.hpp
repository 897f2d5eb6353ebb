#pragma once

namespace pyxfer::hostrt {

/// The function of CUPTI's of that name, over what the host runtime records; null where it has
/// none.
[[nodiscard]] void* activity_function(char const* symbol) noexcept;

}  // namespace pyxfer::hostrt
