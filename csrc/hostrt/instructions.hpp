#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace pyxfer::hostrt {

using word = std::uint64_t;

enum class action : std::uint8_t {
  compute,
  multiply_add,
  read_clock,
  load,
  load_parameter,
  store,
  branch,
  fence,
  leave
};

/// Operands are numbers of a thread's slots, which have its special registers, its parameters, and
/// then its registers and constants. The bits of a slot above its register's width are zero.
struct instruction {
  static constexpr std::size_t always = ~std::size_t{0};

  action does;
  std::uint8_t operands = 0;  ///< of a load or a store: values in memory
  std::uint8_t bytes = 0;     ///< of each value in memory
  bool is_plain = false;      ///< a load that may return an older value
  word (*compute)(word, word) = nullptr;
  std::size_t guard = always;
  /// The result and its sources, the values in memory, or the number of the instruction to go to.
  std::array<std::size_t, 4> slots{};
  std::size_t address = 0;
  word offset = 0;  ///< of the address
};

/// a * b + c of the bits of three float32, in one rounding.
[[nodiscard]] word multiply_add(word a, word b, word c);

/// The instructions of PTX that the engine's kernels need, without their operands.
[[nodiscard]] std::map<std::string, instruction> const& known_instructions();

}  // namespace pyxfer::hostrt
