#pragma once

#include "cuda/kernel_module.hpp"
#include "cuda/stream.hpp"
#include "links/user_count.hpp"

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace pyxfer {

/// What a chase writes to page-locked memory. `ran` stays 0 if no block ran on the wanted
/// multiprocessor.
struct chase_result {
  std::int64_t cycles;
  std::int64_t nanoseconds;
  std::uint64_t last;
  std::int32_t multiprocessor;
  std::uint32_t ran;
};
static_assert(sizeof(chase_result) == 32, "the kernel writes these offsets");

/// The kernels of `kernel_text` in the primary context of one device. Addresses are those by which
/// the device accesses the memory. Several threads may launch them and call close() at a time.
class kernels {
 public:
  /// Throws `kernels_unavailable_error` if the driver does not make them.
  explicit kernels(int device);

  [[nodiscard]] int device() const noexcept { return module_.device(); }
  [[nodiscard]] double load_s() const noexcept { return module_.load_s(); }
  /// How many multiprocessors the device has; their numbers begin with 0.
  [[nodiscard]] unsigned int multiprocessors() const noexcept { return multiprocessors_; }
  [[nodiscard]] bool closed() const noexcept { return users_.closed(); }
  [[nodiscard]] user_count& users() noexcept { return users_; }

  // Each one queues a kernel; the device's primary context is current.

  void copy(std::uintptr_t destination, std::uintptr_t source, std::size_t bytes,
            stream_view on) const;
  /// Writes a float32 for each thread, that is, for each 4 of `bytes`.
  void compute(std::uintptr_t results, std::size_t bytes, std::uint32_t rounds,
               stream_view on) const;
  /// On any multiprocessor if `multiprocessor` is negative.
  void chase(std::uintptr_t first, std::uintptr_t out, std::uint32_t hops, int multiprocessor,
             stream_view on) const;
  void hold(std::uintptr_t flag, std::uintptr_t late, double limit_s, stream_view on) const;

  /// Unloads them. Throws std::logic_error while a run uses them.
  void close();
  /// Leaves the module to the end of the process, because the device does not respond.
  void abandon() noexcept {
    users_.abandon();
    module_.abandon();
  }

  static constexpr std::size_t word_bytes = 16;  ///< of copy()
  static constexpr unsigned int compute_threads = 256;
  /// Of compute(): the results of a block.
  static constexpr std::size_t results_bytes = compute_threads * sizeof(float);

 private:
  unsigned int multiprocessors_;
  kernel_module module_;
  user_count users_;
  CUfunction copy_;
  CUfunction compute_;
  CUfunction chase_;
  CUfunction gate_;
};

}  // namespace pyxfer
