#pragma once

namespace pyxfer::hostrt {

/// Takes back what control.hpp orders of the records.
void reset_activity();

}  // namespace pyxfer::hostrt
