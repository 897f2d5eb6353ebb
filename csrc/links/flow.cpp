#include "links/flow.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/process.hpp"

#include <cmath>
#include <stdexcept>

namespace pyxfer {
namespace {

/// Words that the processor and the device write are in cache lines of their own.
constexpr std::size_t line = 64;
constexpr std::size_t late_at = line;
constexpr std::size_t results_at = 2 * line;

void require(bool holds, char const* text) {
  if (!holds) { throw std::invalid_argument(text); }
}

/// The address by which the device of the flow accesses a side of it, which is memory of `owner`.
std::uintptr_t device_address(std::uintptr_t address, int owner, flow_plan const& plan) {
  cudaPointerAttributes found{};
  PYXFER_TRY(cudaPointerGetAttributes(&found, reinterpret_cast<void const*>(address)));
  if (owner != flow::host) {
    require(found.type == cudaMemoryTypeDevice && found.device == owner,
            "an address of a flow is not in the memory of its device");
    return address;
  }
  if (found.type == cudaMemoryTypeHost) {
    return plan.engine == flow_engine::ce ? address
                                          : reinterpret_cast<std::uintptr_t>(found.devicePointer);
  }
  // A copy of pageable memory would wait behind the gate, in the call. A kernel can read it where
  // the device uses the page tables of the host.
  require(found.type == cudaMemoryTypeUnregistered && plan.engine != flow_engine::ce &&
              device_attribute(plan.device, cudaDevAttrPageableMemoryAccess) != 0,
          "the host side of a flow needs page-locked memory");
  return address;
}

cudaMemcpyKind kind_of(flow_plan const& plan) {
  if (plan.source_device == flow::host) { return cudaMemcpyHostToDevice; }
  if (plan.destination_device == flow::host) { return cudaMemcpyDeviceToHost; }
  // Between devices the driver finds the way: directly with peer access, else through the host.
  return cudaMemcpyDefault;
}

std::vector<event> make_events(int device, std::size_t count) {
  std::vector<event> made;
  made.reserve(count);
  for (std::size_t i = 0; i < count; ++i) { made.emplace_back(device); }
  return made;
}

}  // namespace

flow_engine flow_engine_of(std::string const& word) {
  if (word == "ce") { return flow_engine::ce; }
  if (word == "sm") { return flow_engine::sm; }
  if (word == "chase") { return flow_engine::chase; }
  if (word == "compute") { return flow_engine::compute; }
  throw std::invalid_argument("unknown engine \"" + word + "\"; known are ce, sm, chase, compute");
}

flow::flow(flow_plan const& plan, kernels* with)
    : plan_{plan},
      kernels_{with},
      stream_{(check(), plan.device)},
      begins_{make_events(plan.device, plan.depth)},
      ends_{make_events(plan.device, plan.depth)} {
  find_addresses();
  if (kernels_ == nullptr) { return; }
  words_ = std::make_shared<host_buffer>(results_at + plan_.depth * sizeof(chase_result),
                                         memory_kind::pinned, plan_.device);
}

flow::~flow() {
  release_noexcept([this] { close(); });
}

void flow::check() const {
  require(plan_.depth >= 1 && plan_.depth <= most_depth, "the depth of a flow is 1 to 256");
  require(std::isfinite(plan_.pace_bytes_per_s) && plan_.pace_bytes_per_s >= 0,
          "the pace of a flow is a finite number of bytes per second");
  auto const computes = plan_.engine == flow_engine::compute;
  require((plan_.source != 0 || computes) && plan_.bytes > 0,
          "a flow needs an address and at least one byte");
  require(kernels_ == nullptr || kernels_->device() == plan_.device,
          "the kernels of a flow are those of its device");
  if (plan_.engine == flow_engine::chase) {
    require(kernels_ != nullptr, "a chase needs kernels");
    require(plan_.hops > 0, "a chase needs at least one hop");
    require(plan_.multiprocessor >= each_in_turn,
            "the multiprocessor of a chase is a number, -1 for any, or -2 for each in turn");
    return;
  }
  require(plan_.destination != 0, "a flow needs two addresses");
  if (computes) {
    require(kernels_ != nullptr, "a computation needs kernels");
    require(plan_.rounds > 0, "a computation needs at least one round");
    require(plan_.destination_device == plan_.device && plan_.bytes % kernels::results_bytes == 0,
            "the results of a computation are a multiple of 1024 bytes of memory of its device");
    return;
  }
  require(plan_.source_device != host || plan_.destination_device != host,
          "one side of a flow is device memory");
  if (plan_.engine == flow_engine::ce) { return; }
  require(kernels_ != nullptr, "a copy by a kernel needs kernels");
  require((plan_.bytes | plan_.source | plan_.destination) % kernels::word_bytes == 0,
          "a copy by a kernel needs addresses and a size that are multiples of 16 bytes");
}

void flow::find_addresses() {
  device_guard const guard{plan_.device};
  if (plan_.engine != flow_engine::compute) {
    plan_.source = device_address(plan_.source, plan_.source_device, plan_);
  }
  if (plan_.engine == flow_engine::chase) { return; }
  plan_.destination = device_address(plan_.destination, plan_.destination_device, plan_);
}

int flow::multiprocessor_of(std::size_t turn) const {
  if (plan_.multiprocessor != each_in_turn) { return plan_.multiprocessor; }
  return static_cast<int>(turn % kernels_->multiprocessors());
}

void flow::issue(std::size_t place, std::size_t turn) const {
  if (plan_.engine == flow_engine::ce) {
    PYXFER_TRY(cudaMemcpyAsync(reinterpret_cast<void*>(plan_.destination),
                               reinterpret_cast<void const*>(plan_.source), plan_.bytes,
                               kind_of(plan_), on().handle()));
  } else if (plan_.engine == flow_engine::sm) {
    kernels_->copy(plan_.destination, plan_.source, plan_.bytes, on());
  } else if (plan_.engine == flow_engine::compute) {
    kernels_->compute(plan_.destination, plan_.bytes, plan_.rounds, on());
  } else {
    auto& out = result(place);
    out = {};
    kernels_->chase(plan_.source, reinterpret_cast<std::uintptr_t>(&out), plan_.hops,
                    multiprocessor_of(turn), on());
  }
}

chase_result& flow::result(std::size_t place) const {
  return *reinterpret_cast<chase_result*>(words_->address() + results_at +
                                          place * sizeof(chase_result));
}

std::atomic<std::uint32_t>& flow::gate_flag() const {
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(words_->address());
}

std::atomic<std::uint32_t>& flow::gate_late() const {
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(words_->address() + late_at);
}

void flow::close() {
  if (!users_.close("this flow")) { return; }
  if (is_stuck()) {
    abandon();
    throw timeout_error(
        "An item of a flow is still under way, so its memory is kept until the process ends.");
  }
  closing all;
  for (auto& made : begins_) { all.close(made); }
  for (auto& made : ends_) { all.close(made); }
  all.close(stream_);
  held_by_.reset();
  // The last flow that was held by them releases them.
  if (words_.use_count() == 1) { all.close(*words_); }
  words_.reset();
  all.finish();
}

bool flow::is_stuck() {
  if (!stuck_ || !same_process()) { return false; }
  try {
    return !ends_.front().passed();
  } catch (cuda_error const&) { return false; }  // a device that is lost does nothing
}

void flow::abandon() noexcept {
  users_.abandon();
  for (auto& made : begins_) { made.abandon(); }
  for (auto& made : ends_) { made.abandon(); }
  stream_.abandon();
  for (auto const& kept : {words_, held_by_}) {
    if (kept) { kept->abandon(); }
  }
}

}  // namespace pyxfer
