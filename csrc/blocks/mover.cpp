#include "blocks/mover.hpp"

#include "blocks/kernel_text.hpp"
#include "cuda/cleanup.hpp"
#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/error.hpp"
#include "cuda/process.hpp"
#include "ring/layout.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace pyxfer {
namespace {

/// The first CUDA with cuMemcpyBatchAsync. CUDA 13.0 has another function under that name, without
/// the index of the copy that failed (CUDA 13.0 release notes), and drivers keep both.
constexpr unsigned batch_api = 12080;

constexpr std::size_t wrong_bytes = 64;

/// What GPUs state as CU_DEVICE_ATTRIBUTE_MAX_PITCH.
constexpr std::size_t most_pitch = (std::size_t{1} << 31U) - 1;

void copy_run(std::uintptr_t to, std::uintptr_t from, std::size_t bytes, stream_view on) {
  PYXFER_TRY(driver().cuMemcpyAsync(to, from, bytes, on.handle()));
}

void move_in_loop(block_copy const& between, block_list const& list, stream_view on) {
  for (auto const& run : runs_of(between, list)) {
    copy_run(between.destination.at(run.to), between.source.at(run.from),
             run.blocks * between.block_bytes, on);
  }
}

void move_strided(block_copy const& between, block_list const& list, stream_view on) {
  auto const steps = steps_of(list);
  if (!steps) {
    throw std::invalid_argument(
        "the method \"strided\" needs indices that go up by equal steps on both sides: give "
        "another method, or \"auto\"");
  }
  auto const widest =
      std::max(steps->from * between.source.stride, steps->to * between.destination.stride);
  if (widest > most_pitch) {
    throw std::invalid_argument(
        "the method \"strided\" takes steps of less than 2 GiB: give another method");
  }
  CUDA_MEMCPY2D order{};  // NOLINT(bugprone-invalid-enum-default-initialization): set below
  order.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  order.srcDevice = between.source.at(static_cast<std::size_t>(list.from[0]));
  order.srcPitch = steps->from * between.source.stride;
  order.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  order.dstDevice = between.destination.at(static_cast<std::size_t>(list.to[0]));
  order.dstPitch = steps->to * between.destination.stride;
  order.WidthInBytes = between.block_bytes;
  order.Height = list.count;
  PYXFER_TRY(driver().cuMemcpy2DAsync(&order, on.handle()));
}

void require_ordinary_stream(stream_view on) {
  if (on.handle() == nullptr || on.handle() == CU_STREAM_LEGACY) {
    throw std::invalid_argument(
        "the driver refuses the method \"batch\" on the legacy default stream: make another stream "
        "current, or give another method");
  }
}

void refuse_capture(stream_view on, char const* what) {
  if (!is_capturing(on)) { return; }
  throw std::invalid_argument(std::string{what} +
                              " cannot be part of a CUDA graph, into which the stream is being "
                              "captured: copy before or after the capture");
}

void write_pairs(block_list const& list, packed_pair* to) {
  for (std::size_t i = 0; i < list.count; ++i) {
    to[i] =
        pair_of(static_cast<std::uint64_t>(list.from[i]), static_cast<std::uint64_t>(list.to[i]));
  }
}

void require_reachable(char const* name, block_pool const& pool, std::size_t block_bytes) {
  auto const found = known_memory(pool.address, pool.end(block_bytes) - pool.address);
  if (found == known_as::of_device || found == known_as::page_locked) { return; }
  throw std::invalid_argument(std::string{"the "} + name +
                              " is neither page-locked nor on the device, or was freed: a kernel "
                              "cannot access it");
}

/// Blocks of host memory that are contiguous on the device. Neighbours are one part.
layout layout_of(block_pool const& pool, std::int64_t const* indices, std::size_t count,
                 std::size_t block_bytes) {
  std::vector<layout::part> parts;
  parts.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    auto const address = pool.at(static_cast<std::size_t>(indices[i]));
    if (!parts.empty() && parts.back().address + parts.back().bytes == address) {
      parts.back().bytes += block_bytes;
    } else {
      parts.push_back({address, block_bytes, i * block_bytes});
    }
  }
  return layout{std::move(parts)};
}

std::vector<std::int64_t> numbers_below(std::size_t count) {
  std::vector<std::int64_t> made(count);
  std::iota(made.begin(), made.end(), 0);
  return made;
}

}  // namespace

move_method move_method_of(std::string const& word) {
  if (word == "loop") { return move_method::loop; }
  if (word == "batch") { return move_method::batch; }
  if (word == "strided") { return move_method::strided; }
  if (word == "kernel") { return move_method::kernel; }
  if (word == "packed") { return move_method::packed; }
  throw std::invalid_argument("unknown method \"" + word +
                              "\"; known are loop, batch, strided, kernel, packed");
}

block_mover::block_mover(int device)
    : device_{device},
      context_{primary_context(device)},
      own_{device},
      batch_{reinterpret_cast<batch_call>(driver_function("cuMemcpyBatchAsync", batch_api))},
      wrong_{wrong_bytes, memory_kind::pinned, device},
      slots_{device},
      emptied_{device, event_use::order} {
  *reinterpret_cast<std::uint32_t*>(wrong()) = 0;
  try {
    kernels_ = std::make_unique<block_kernels>(device);
  } catch (kernels_unavailable_error const& error) {
    no_kernel_ = error.what();
    if (auto const hint = hint_for(error.code()); !hint.empty()) { no_kernel_ += ". " + hint; }
  }
}

block_mover::~block_mover() {
  if (closed_) { return; }
  if (!abandoned_) {
    try {
      close();
      return;
    } catch (std::exception const& error) { note_cleanup_failure(error); }
  }
  leave_all();
}

std::shared_lock<std::shared_mutex> block_mover::enter() {
  note_process();
  std::shared_lock held{in_use_};
  if (closed_ || abandoned_) {
    throw std::invalid_argument("this mover of blocks is closed: make a new one");
  }
  return held;
}

bool block_mover::captures(std::optional<stream_view> on) const {
  context_guard const guard{context_};
  return is_capturing(used(on));
}

block_kernels const& block_mover::kernels_for(block_copy const& between) const {
  if (!kernels_) { throw std::invalid_argument("the driver makes no kernels here: " + no_kernel_); }
  if (!block_kernels::can_move(between)) {
    throw std::invalid_argument(
        "a kernel copies words of 16 bytes, so addresses, strides and blocks are multiples of 16, "
        "and blocks have less than 4 GiB: give the method \"loop\" or \"batch\"");
  }
  require_reachable("source", between.source, between.block_bytes);
  require_reachable("destination", between.destination, between.block_bytes);
  return *kernels_;
}

void block_mover::move(move_method by, block_copy const& between, block_list const& list,
                       std::optional<stream_view> on, interruption const& interrupted) {
  auto const held = enter();
  validate(between);
  validate(between, list);
  if (list.count == 0) { return; }
  context_guard const guard{context_};
  auto const stream = used(on);
  switch (by) {
    case move_method::loop: move_in_loop(between, list, stream); break;
    case move_method::batch: move_in_batches(between, list, stream); break;
    case move_method::strided: move_strided(between, list, stream); break;
    case move_method::kernel: move_by_kernel(between, list, stream, interrupted); break;
    case move_method::packed: throw std::invalid_argument("packed blocks go through a ring");
  }
}

void block_mover::move_in_batches(block_copy const& between, block_list const& list,
                                  stream_view on) const {
  if (batch_ == nullptr) {
    throw std::invalid_argument(
        "this driver has no call for many copies (CUDA 12.8): give another method");
  }
  require_ordinary_stream(on);
  refuse_capture(on, "the method \"batch\"");
  auto const runs = runs_of(between, list);
  std::vector<CUdeviceptr> to;
  std::vector<CUdeviceptr> from;
  std::vector<std::size_t> sizes;
  for (auto const& run : runs) {
    to.push_back(between.destination.at(run.to));
    from.push_back(between.source.at(run.from));
    sizes.push_back(run.blocks * between.block_bytes);
  }
  CUmemcpyAttributes attributes{};
  // Not ANY: copies could then read before earlier work of the stream has written (vLLM issue
  // 39306).
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  std::size_t first = 0;
  for (std::size_t done = 0; done < runs.size(); done += most_in_batch) {
    std::size_t failed = 0;
    auto const count = std::min(most_in_batch, runs.size() - done);
    PYXFER_TRY_STATUS("cuMemcpyBatchAsync",
                      batch_(to.data() + done, from.data() + done, sizes.data() + done, count,
                             &attributes, &first, 1, &failed, on.handle()));
  }
}

void block_mover::move_by_kernel(block_copy const& between, block_list const& list, stream_view on,
                                 interruption const& interrupted) {
  auto const& kernels = kernels_for(between);
  if (list.count <= most_few_blocks) {
    std::array<packed_pair, most_few_blocks> pairs{};
    write_pairs(list, pairs.data());
    kernels.move_few({between, wrong(), shape_, on}, pairs.data(), list.count);
    return;
  }
  refuse_capture(on, "a copy with more than 256 indices of the host");
  for (std::size_t done = 0; done < list.count; done += index_slots::most_pairs) {
    move_many(between, list.part(done, index_slots::most_pairs), on, interrupted);
  }
}

void block_mover::move_many(block_copy const& between, block_list const& list, stream_view on,
                            interruption const& interrupted) {
  auto& slot = slots_.take(interrupted);
  write_pairs(list, slot.pairs());
  // A kernel that read them from page-locked memory would take a quarter of the link's requests.
  copy_run(slot.memory.address(), slot.host.address(), list.count * sizeof(packed_pair), on);
  kernels_->move_many({between, wrong(), shape_, on}, slot.memory.address(), list.count);
  slot.passed.record(on);
  slots_.give_back(slot);
}

void block_mover::move_given(block_copy const& between, std::uintptr_t from, std::uintptr_t to,
                             std::size_t count, std::optional<stream_view> on) {
  auto const held = enter();
  validate(between);
  context_guard const guard{context_};
  if (count == 0) { return; }
  auto const& kernels = kernels_for(between);
  for (std::size_t done = 0; done < count; done += block_kernels::most_count) {
    auto const offset = done * sizeof(std::int64_t);
    kernels.move_given({between, wrong(), shape_, used(on)}, from + offset, to + offset,
                       std::min(count - done, block_kernels::most_count));
  }
}

/// Room for as many of the blocks as the buffer may hold.
block_pool block_mover::buffer_for(std::size_t block_bytes, std::size_t count) {
  if (block_bytes > most_buffer_bytes) {
    throw std::invalid_argument(
        "blocks of more than 64 MiB are not packed: give the method \"loop\"");
  }
  auto const blocks = std::min(count, most_buffer_bytes / block_bytes);
  if (!buffer_ || buffer_->size() < blocks * block_bytes) {
    buffer_.reset();
    buffer_ = std::make_unique<device_buffer>(
        blocks == count ? blocks * block_bytes : most_buffer_bytes, device_);
  }
  return {buffer_->address(), blocks, block_bytes};
}

/// Calls `step(buffer, indices of its blocks, part of the list, stream)` for each part of the list
/// that fits into the buffer. Parts of two streams do not meet in it.
template <typename Step>
void block_mover::pack(block_copy const& between, block_list const& list,
                       std::optional<stream_view> on, Step const& step) {
  auto const held = enter();
  validate(between);
  validate(between, list);
  if (list.count == 0) { return; }
  context_guard const guard{context_};
  auto const stream = used(on);
  refuse_capture(stream, "the method \"packed\"");
  std::scoped_lock const packing{packing_};
  auto const buffer = buffer_for(between.block_bytes, list.count);
  auto const numbers = numbers_below(buffer.blocks);
  for (std::size_t done = 0; done < list.count; done += buffer.blocks) {
    emptied_.hold(stream);
    step(buffer, numbers.data(), list.part(done, buffer.blocks), stream);
    emptied_.record(stream);
  }
}

void block_mover::upload_packed(ring& through, block_copy const& between, block_list const& list,
                                std::optional<stream_view> on, interruption const& interrupted) {
  pack(between, list, on,
       [&](block_pool const& buffer, std::int64_t const* numbers, block_list const& part,
           stream_view stream) {
         block_copy const scattered{buffer, between.destination, between.block_bytes};
         static_cast<void>(kernels_for(scattered));  // before anything is queued
         auto const from = layout_of(between.source, part.from, part.count, between.block_bytes);
         if (from.bytes() > ring::most_at_once ||
             !through.upload_at_once(from, buffer.address, stream)) {
           through.upload(from, buffer.address, stream, false, interrupted);
         }
         move_by_kernel(scattered, {numbers, part.to, part.count}, stream, interrupted);
       });
}

void block_mover::download_packed(ring& through, block_copy const& between, block_list const& list,
                                  std::optional<stream_view> on, interruption const& interrupted) {
  pack(between, list, on,
       [&](block_pool const& buffer, std::int64_t const* numbers, block_list const& part,
           stream_view stream) {
         move_by_kernel({between.source, buffer, between.block_bytes},
                        {part.from, numbers, part.count}, stream, interrupted);
         through.download(buffer.address,
                          layout_of(between.destination, part.to, part.count, between.block_bytes),
                          stream, interrupted);
       });
}

void block_mover::wait(std::optional<stream_view> on, interruption const& interrupted) {
  auto const held = enter();
  context_guard const guard{context_};
  std::unique_ptr<event> passed;
  {
    std::scoped_lock const taking{events_};
    if (!idle_events_.empty()) {
      passed = std::move(idle_events_.back());
      idle_events_.pop_back();
    }
  }
  if (!passed) { passed = std::make_unique<event>(device_, event_use::order); }
  passed->record(used(on));
  poll_until([&] { return passed->passed(); }, [&] { return interrupted && interrupted(); },
             "cancelled while it waited for copies of blocks");
  {
    std::scoped_lock const giving{events_};
    idle_events_.push_back(std::move(passed));
  }
  auto& flag = *reinterpret_cast<std::atomic<std::uint32_t>*>(wrong());
  if (flag.load() != 0 && flag.exchange(0) != 0) {
    throw std::out_of_range(
        "an index on the device was outside its pool, and its block was not copied: give indices "
        "inside the pools");
  }
}

bool block_mover::is_idle() {
  context_guard const guard{context_};
  return pyxfer::is_idle(own_.view()) && emptied_.passed() && slots_.is_idle();
}

void block_mover::close(double patience_s) {
  if (!same_process() || abandoned_) { return; }
  std::unique_lock const unused{in_use_};
  if (closed_) { return; }
  polling const rest;
  while (!is_idle()) {
    if (rest.waited_s() >= patience_s) {
      std::ostringstream text;
      text << "The device did not finish the copies of blocks within " << patience_s
           << " s. Another program may hold it, or it has hung: look at nvidia-smi and for Xid in "
              "dmesg.";
      throw timeout_error(text.str());
    }
    rest.pause();
  }
  synchronize_device(device_);  // kernels may still run on streams of callers
  closed_ = true;
  closing all;
  all.close(slots_);
  all.close(own_);
  all.close(wrong_);
  if (buffer_) { all.close(*buffer_); }
  all.close(emptied_);
  if (kernels_) { all.close(*kernels_); }
  for (auto const& each : idle_events_) { all.close(*each); }
  all.finish();
}

void block_mover::leave_all() noexcept {
  if (!same_process()) { return; }
  slots_.abandon();
  own_.abandon();
  wrong_.abandon();
  if (buffer_) { buffer_->abandon(); }
  emptied_.abandon();
  if (kernels_) { kernels_->abandon(); }
  for (auto const& each : idle_events_) { each->abandon(); }
}

}  // namespace pyxfer
