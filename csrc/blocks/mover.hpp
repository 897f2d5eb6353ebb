#pragma once

#include "blocks/index_slots.hpp"
#include "blocks/kernels.hpp"
#include "blocks/list.hpp"
#include "cuda/memory.hpp"
#include "cuda/stream.hpp"
#include "cuda/wait.hpp"
#include "ring/ring.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

namespace pyxfer {

/// How blocks are copied; the words are those of the documents.
enum class move_method {
  loop,     ///< one asynchronous copy for each run of neighbours
  batch,    ///< the driver's call for many copies, some thousands of runs at a time
  strided,  ///< one copy in two dimensions, of indices that go up by equal steps
  kernel,   ///< a kernel that reads and writes page-locked memory itself
  packed    ///< through a buffer on the device, which a kernel gathers or scatters
};

[[nodiscard]] move_method move_method_of(std::string const& word);

// clang-format off
/// Copies blocks between pools in host memory and on one device, or between two on the device.
///
/// Any thread may call it. Work is queued on the caller's stream, or on the mover's own. When a call
/// returns, the indices have been read, but page-locked memory has not: it must exist until the
/// stream has done the work. Wrong arguments are refused with std::invalid_argument before anything
/// is queued. Only blocks that an index names are written.
///
/// | field             | written by             | read by    | ordered by                    |
/// |-------------------|------------------------|------------|-------------------------------|
/// | closed_           | close                  | any thread | in_use_, exclusively in close |
/// | abandoned_        | abandon                | any thread | itself                        |
/// | buffer_, emptied_ | packed copies          | the same   | packing_                      |
/// | idle_events_      | threads that wait      | the same   | events_                       |
/// | shape_            | the tuner              | any thread | nothing: it is set before use |
// clang-format on
class block_mover {
 public:
  /// The driver crashed or hung with 51,828 copies in one call (vLLM issue 49276, driver 580).
  static constexpr std::size_t most_in_batch = 8192;
  /// Of the buffer on the device through which packed blocks go.
  static constexpr std::size_t most_buffer_bytes = std::size_t{64} << 20U;
  static constexpr double usual_patience_s = 30;

  explicit block_mover(int device);
  ~block_mover();
  block_mover(block_mover const&) = delete;
  block_mover& operator=(block_mover const&) = delete;
  block_mover(block_mover&&) = delete;
  block_mover& operator=(block_mover&&) = delete;

  [[nodiscard]] int device() const noexcept { return device_; }
  /// Whether the driver has the call for many copies.
  [[nodiscard]] bool has_batch() const noexcept { return batch_ != nullptr; }
  /// Why there is no kernel; empty if there is.
  [[nodiscard]] std::string const& no_kernel() const noexcept { return no_kernel_; }
  [[nodiscard]] kernel_shape shape() const noexcept { return shape_; }
  void set_shape(kernel_shape shape) noexcept { shape_ = shape; }
  /// Whether work on this stream would go into a CUDA graph.
  [[nodiscard]] bool captures(std::optional<stream_view> on) const;

  /// By any method except `packed`. Both pools are memory that the device can access; by `loop` and
  /// `strided` one may be pageable, for which the call waits.
  void move(move_method by, block_copy const& between, block_list const& list,
            std::optional<stream_view> on, interruption const& interrupted = {});
  /// By the kernel, with `count` indices of 64 bits on the device. They are checked there: an index
  /// outside its pool is skipped, and `wait` throws for it.
  void move_given(block_copy const& between, std::uintptr_t from, std::uintptr_t to,
                  std::size_t count, std::optional<stream_view> on);
  /// From host memory of any kind, through a ring. It returns when the blocks have been read.
  void upload_packed(ring& through, block_copy const& between, block_list const& list,
                     std::optional<stream_view> on, interruption const& interrupted = {});
  /// To host memory of any kind. It returns when the blocks have been written.
  void download_packed(ring& through, block_copy const& between, block_list const& list,
                       std::optional<stream_view> on, interruption const& interrupted = {});
  /// Returns when the device has done all work of the stream so far. Throws std::out_of_range if an
  /// index on the device was outside its pool since the last call.
  void wait(std::optional<stream_view> on, interruption const& interrupted = {});

  /// Waits for its own stream and for the kernels that read its indices, and releases everything.
  /// Throws `timeout_error` after `patience_s`, and can then be called again.
  void close(double patience_s = usual_patience_s);
  /// Leaves everything to the end of the process, because the device does not respond. Later calls
  /// are refused, and running ones go on.
  void abandon() noexcept { abandoned_ = true; }

 private:
  using batch_call = CUresult (*)(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t,
                                  CUmemcpyAttributes*, std::size_t*, std::size_t, std::size_t*,
                                  CUstream);

  [[nodiscard]] std::shared_lock<std::shared_mutex> enter();
  [[nodiscard]] stream_view used(std::optional<stream_view> on) const noexcept {
    return on.value_or(own_.view());
  }
  /// The kernels, if they can move these blocks. It asks the driver for the memory each time,
  /// because an access to memory that was freed or unlocked meanwhile would end the process's use
  /// of the GPU.
  [[nodiscard]] block_kernels const& kernels_for(block_copy const& between) const;
  [[nodiscard]] std::uintptr_t wrong() const noexcept { return wrong_.address(); }
  void move_in_batches(block_copy const& between, block_list const& list, stream_view on) const;
  void move_by_kernel(block_copy const& between, block_list const& list, stream_view on,
                      interruption const& interrupted);
  void move_many(block_copy const& between, block_list const& list, stream_view on,
                 interruption const& interrupted);
  [[nodiscard]] block_pool buffer_for(std::size_t block_bytes, std::size_t count);
  template <typename Step>
  void pack(block_copy const& between, block_list const& list, std::optional<stream_view> on,
            Step const& step);
  [[nodiscard]] bool is_idle();
  void leave_all() noexcept;

  int device_;
  CUcontext context_;
  stream own_;
  batch_call batch_;
  std::unique_ptr<block_kernels> kernels_;  ///< null if the driver did not make them
  std::string no_kernel_;
  kernel_shape shape_{16, 512};
  host_buffer wrong_;
  index_slots slots_;

  std::mutex packing_;  ///< held while blocks go through the buffer
  std::unique_ptr<device_buffer> buffer_;
  event emptied_;

  std::mutex events_;
  std::vector<std::unique_ptr<event>> idle_events_;

  std::shared_mutex in_use_;
  bool closed_{false};
  std::atomic<bool> abandoned_{false};
};

}  // namespace pyxfer
