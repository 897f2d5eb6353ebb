#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

/// Functions with which tests control the host runtime: they order errors, delays and link speeds.
/// The code under test never includes this header.
///
/// The environment variable PYXFER_HOSTRT controls a whole process. It is read once, at the first
/// call or `reset`, and holds orders separated by `;`:
///
///     fail=CALL:NTH:CODE          like `fail`
///     lose=CALL:NTH:CODE          like `fail_sticky`
///     stall=CALL:NTH:SECONDS      like `stall`
///     devices=COUNT               like `set_device_count`
///     connections=COUNT           like `set_connections`
///     link=RATE:LATENCY:RATE:LATENCY    like `model_link`: h2d and then d2h, bytes/s and seconds
///     link-of=DEVICE:RATE:LATENCY:RATE:LATENCY    like `model_link_of`
///
/// for example `fail=cudaMalloc:3:2;link=25e9:5e-6:24e9:6e-6`. If an order cannot be read, stderr
/// names it, and every call returns cudaErrorInvalidValue.
///
/// CALL is the name of a runtime or driver call, NTH the number of that call, counted from 1 and
/// from now on. The functions throw std::invalid_argument for an order that would never take
/// effect.
namespace pyxfer::hostrt {

struct allocation {
  std::string kind;  ///< device, pinned, write-combined, registered, stream, event or module
  std::uintptr_t address;
  std::size_t bytes;
};

struct direction_model {
  double bytes_per_s;  ///< 0: as fast as memory
  double latency_s;    ///< added to every copy, and once to a batch; the engine is busy during it
};

/// Sets the link's speed. Each device has one copy engine per direction: copies of several streams
/// in the same direction share it, and opposite directions run at the same time. By the streams'
/// clocks a copy takes exactly the modelled time, even if this machine's memory is slower.
void model_link(direction_model h2d, direction_model d2h);

/// The same for one device, for example one with half of the lanes.
void model_link_of(int device, direction_model h2d, direction_model d2h);

/// Keeps the caller's thread busy in each call of that name, as a driver does when it loads a
/// module (186 ms on an H100) or maps the memory of a peer. Calls of one device do so one at a
/// time.
void model_call(std::string const& call, double seconds);

/// How long the caller's thread is busy with a call that queues copies.
struct issue_model {
  double call_s;        ///< of cudaMemcpyAsync and cudaMemcpyBatchAsync
  double descriptor_s;  ///< added for each copy of a batch
};

/// Sets the time of the calls that queue copies. The copies begin after their call.
void model_issue(issue_model const& model);

/// Sets the speed from one device to another, with peer access in either direction. A device and
/// itself: copies inside it. Without a model or without access, copies use the links to the host.
void model_pair(int source, int destination, direction_model model);

/// Whether peer access is refused, as between devices of different kinds.
void refuse_peer(int device, int peer, bool refused);

/// The nth call of that name returns `code`, once. A call that releases something (free, destroy,
/// unregister) still releases it, because the real calls also report errors of earlier work.
void fail(std::string const& call, int nth, int code);

/// The same, and the device that is current in the calling thread is lost with that code.
void fail_sticky(std::string const& call, int nth, int code);

/// The nth call takes `seconds` longer. An asynchronous call (copy, memset, host function, record,
/// wait) is delayed when it executes on its stream, every other call before it returns.
void stall(std::string const& call, int nth, double seconds);

/// Lets one device hang: none of its streams begins work that was queued, until `release_stalls`.
void hang_device(int device);

/// Ends all hangs, and all stalls that were ordered so far, also those whose call was not made yet.
void release_stalls();

/// Loses all devices: from now on every call returns `code`, except those for versions, error texts
/// and the last error. Queued work is dropped, waiting calls return, and releasing calls still
/// release.
void lose_device(int code);
/// The same for the calls that concern one device: while it is current, and on its streams and
/// events.
void lose_one_device(int device, int code);

/// Destroys the context of a device, like cudaDeviceReset of another library: calls return 400 for
/// its streams and 709 for its events. Queued work is still done, and memory stays until released.
void destroy_context(int device);

/// The number of devices: 1 by default, at most 16. With 0, calls return cudaErrorNoDevice.
void set_device_count(int count);

/// Whether device memory that is allocated from now on is unreadable at the program's addresses, as
/// on a device: a direct access ends the process with SIGSEGV. `reset` leaves it as it is.
void protect_device_memory(bool on);

/// Sets the number of hardware queues of each engine of a device (kernels, h2d, d2h), like
/// CUDA_DEVICE_MAX_CONNECTIONS: work that cannot begin yet holds up later work of other streams in
/// its queue. 0, the default: each stream has its own. An H200 with driver 580 did so with one
/// connection; with its default of 8, work of 6 of 31 streams was held up now and then.
void set_connections(int count);

/// Behaves like an old driver: an entry point of the driver cannot be found, or a runtime call
/// returns cudaErrorCallRequiresNewerDriver.
void set_missing(std::string const& symbol, bool missing);

/// Every call returns 35 (no driver, or too old) or 100 (no device), except those named at
/// `lose_device`; 0 ends it.
void set_no_driver(int code);

/// Sets the value of a device attribute, which is a number of cudaDeviceAttr: for example 1 for
/// cudaDevAttrPageableMemoryAccess, as on Grace Hopper.
void set_attribute(int attribute, int value);
/// The same for one device.
void set_attribute_of(int device, int attribute, int value);

/// Begins to capture the stream of a handle in the mode "global", "thread_local" or "relaxed", like
/// another library.
void begin_capture(std::uintptr_t stream, std::string const& mode);

/// Ends the capture. Returns 0 if it is valid, else the code of the call.
[[nodiscard]] int end_capture(std::uintptr_t stream);

/// Queues work that takes `seconds` on the stream of a handle, and records it as a kernel.
void kernel(std::string const& name, double seconds, std::uintptr_t stream);

/// Records, like NVTX, that a range of this thread begins, or that the last open range of that name
/// ends.
void mark(std::string const& name, bool begin);

/// Skews the activity clock by `ns_offset`, and from now on by `ns_per_s` more every second.
void skew_clock(std::int64_t ns_offset, double ns_per_s);

/// Subscribing returns that result of CUPTI (39: there is another subscriber; 35: not allowed; 15:
/// the library does not fit the driver); 0 ends it.
void refuse_activity(int code);

/// Enabling that kind of record returns `code`, as in a library that does not support it.
void refuse_kind(int kind, int code);

/// Sets whether another profiler of this process is subscribed.
void other_subscriber(bool subscribed);

/// Adds `count` to the number of dropped records.
void lose_records(std::size_t count);

/// Whether the buffer of a record is handed over at once, by the thread that has made the record.
/// CUPTI may hand over buffers at any time, and several at the same time.
void hand_over_at_once(bool on);

/// Everything that is allocated now, except the default streams.
[[nodiscard]] std::vector<allocation> allocated();

/// The number of times that each call was made since the last `reset`, including failed ones.
[[nodiscard]] std::map<std::string, long> calls();

/// Removes all orders, ends all stalls and captures, restores lost devices and contexts, and clears
/// the counts. This thread is set to device 0 without a context or a last error. Allocations stay.
void reset();

/// Carries out a line of orders in the syntax above. Throws std::invalid_argument at the first that
/// cannot be read.
void configure(std::string const& line);

/// Carries out the orders of PYXFER_HOSTRT. Only the first call does anything.
void configure_from_environment();

}  // namespace pyxfer::hostrt
