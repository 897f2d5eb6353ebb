#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stream.hpp"

namespace pyxfer::hostrt {

struct instruction;

/// An entry of a text of PTX.
struct kernel_code {
  std::string name;
  std::vector<std::size_t> parameter_bytes;
  std::vector<bool> is_array;        ///< of each parameter: a kernel has its address
  std::vector<std::uint64_t> slots;  ///< of a thread when it begins
  std::vector<instruction> instructions;
};

/// Reads a text once. The result is never freed, because records have the names of kernels. Throws
/// std::logic_error, also for instructions that the engine's kernels do not need.
[[nodiscard]] std::vector<kernel_code> const& kernels_of(std::string const& text);

/// Queues a kernel, with the values that its parameters have now. Its
/// threads run one after the other, and block n on multiprocessor n modulo their number, as on an
/// idle device. An access that the device may not make, or that is not aligned, loses the device.
///
/// Where a thread loads an address again without `.volatile` or `.cg`, it gets the first value,
/// because a compiler and a cache may keep it. An instruction takes a nanosecond, or two cycles, by
/// the clocks that a thread reads, so what a short kernel measures is the same on every machine.
void queue_kernel(kernel_code const& code, unsigned int blocks, unsigned int threads,
                  std::shared_ptr<stream> const& on, void** parameters, ordered_delay const& delay);

}  // namespace pyxfer::hostrt
