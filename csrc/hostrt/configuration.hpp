#pragma once

#include <string>

namespace pyxfer::hostrt {

/// Carries out the orders of one line in the syntax that control.hpp describes. Throws
/// std::invalid_argument, with nothing carried out, when one cannot be read.
void configure(std::string const& line);

/// Does it, once, for PYXFER_HOSTRT.
void configure_from_environment();

}  // namespace pyxfer::hostrt
