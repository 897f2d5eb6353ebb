#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "device.hpp"

namespace pyxfer::hostrt {

struct invalid_ptx : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The first slots of a thread are its special registers.
enum ptx_special : std::uint8_t { tid, ntid, ctaid, nctaid, smid, globaltimer, clock64, specials };

enum class ptx_op : std::uint8_t {
  move,
  read_clock,
  add,
  subtract,
  multiply,
  shift_left,
  equal,
  not_equal,
  less,
  not_less,
  branch,
  load,
  store,
  fence,
  leave,
};

/// One instruction. Its operands are numbers of slots.
struct ptx_instruction {
  static constexpr std::uint16_t always = 0xffff;

  ptx_op op;
  std::uint8_t bytes;         ///< of the result; of each value in memory
  std::uint8_t source_bytes;  ///< of the sources, without an address
  std::uint8_t sources;       ///< their number; of values in memory
  bool is_plain = false;      ///< a load that a compiler and a cache may leave out
  bool is_negated = false;
  std::uint16_t guard = always;
  /// The result and its sources, or the values in memory.
  std::array<std::uint16_t, 4> slots{};
  std::uint16_t address = 0;
  std::uint64_t offset = 0;  ///< of the address; the number of the instruction to go to
};

/// A kernel. A thread has a slot for each special register, parameter, register and constant.
struct ptx_entry {
  std::string name;
  std::vector<std::uint8_t> parameter_bytes;
  std::vector<std::uint64_t> slots;  ///< at the begin of a thread
  std::vector<ptx_instruction> code;
};

/// The entries of a text. Throws `invalid_ptx`, also for an instruction that the engine's kernels
/// in csrc/links/kernel_text.cpp do not need.
[[nodiscard]] std::vector<ptx_entry> read_ptx(std::string const& text);

/// A kernel that runs: its threads one after the other, and block n on multiprocessor n modulo
/// their number, as on an idle device.
///
/// Where a thread loads an address again without `.volatile` or `.cg`, it gets the first value,
/// because a compiler and a cache may keep it. The clocks advance by a nanosecond, or two cycles,
/// an instruction while a thread runs, so what a short kernel measures does not depend on the
/// machine.
class ptx_run {
 public:
  ptx_run(ptx_entry const& kernel, std::vector<std::uint64_t> const& parameters,
          unsigned int blocks, unsigned int threads, int device);

  /// Runs the blocks before `block`, unless the device is lost. An access to memory that the device
  /// may not access, or that is not aligned, loses it.
  void run_up_to(unsigned int block, loss_epoch const& epoch);

  [[nodiscard]] bool has_stored() const noexcept { return has_stored_; }

 private:
  [[nodiscard]] bool begin_thread(unsigned int block);
  /// Runs for a while. Returns whether more is to be done.
  [[nodiscard]] bool step(unsigned int block);
  /// Returns whether the device may access the memory.
  [[nodiscard]] bool access(ptx_instruction const& at);
  [[nodiscard]] bool check(bool stores, std::uintptr_t address, std::size_t bytes);

  ptx_entry const& kernel_;
  std::vector<std::uint64_t> first_slots_;
  unsigned int threads_;
  int device_;
  unsigned int multiprocessors_;
  std::vector<std::uint64_t> slots_;
  ptx_instruction const* next_ = nullptr;  ///< null between two threads
  unsigned int block_ = 0;
  unsigned int thread_ = 0;
  /// The memory of the last load and of the last store.
  std::array<std::array<std::uintptr_t, 2>, 2> accessible_{};
  std::map<std::uintptr_t, std::uint64_t> seen_;  ///< by plain loads of this thread
  std::uintptr_t polled_ = 0;                     ///< the address of its last volatile load
  bool polls_ = false;
  bool has_stored_ = false;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace pyxfer::hostrt
