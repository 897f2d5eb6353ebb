#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

/// What tests order of the runtime without a GPU. The code under test never includes this.
///
/// Whole processes are ordered about through the environment variable PYXFER_HOSTRT, read once, at
/// the first call or `reset`. It holds orders separated by `;`:
///
///     fail=CALL:NTH:CODE          like `fail`
///     lose=CALL:NTH:CODE          like `fail_sticky`
///     lose=CODE                   like `lose_device`
///     stall=CALL:NTH:SECONDS      like `stall`
///     link=RATE:LATENCY:RATE:LATENCY    like `model_link`: h2d and then d2h, bytes/s and seconds
///     missing=CALL                like `set_missing`
///     no-driver=CODE              like `set_no_driver`
///     devices=COUNT               like `set_device_count`
///     no-trace=CODE               like `refuse_activity`
///
/// for example `fail=cudaMalloc:3:2;link=25e9:5e-6:24e9:6e-6`. If any order cannot be read, none is
/// carried out: a sentence on stderr says which, and every call returns cudaErrorInvalidValue.
///
/// CALL is the name of a runtime or driver call; NTH counts that call from 1, from now on. The
/// functions throw std::invalid_argument for a name that this library does not have, an NTH below
/// 1, or a code that is no error code, because such an order would silently never come true.
namespace pyxfer::hostrt {

struct allocation {
  std::string kind;  ///< device, pinned, write-combined, registered, stream or event
  std::uintptr_t address;
  std::size_t bytes;
};

struct direction_model {
  double bytes_per_s;  ///< 0: as fast as memory
  double latency_s;    ///< added to every copy, and once to a batch; the engine is busy with it
};

/// Gives the link a speed. Each direction of a device has one copy engine: copies of several
/// streams in the same direction share it, opposite directions run side by side. A model faster
/// than this machine's memory gives the memory's speed.
void model_link(direction_model h2d, direction_model d2h);

/// The nth call of that name returns `code`, once. A release call (free, destroy, unregister)
/// releases first: the real ones report the errors of earlier work that way.
void fail(std::string const& call, int nth, int code);

/// The same, and the device is lost with that code.
void fail_sticky(std::string const& call, int nth, int code);

/// The nth call takes so much longer: an asynchronous one (copy, memset, host function, record,
/// wait) where it executes on its stream, every other one in the call itself.
void stall(std::string const& call, int nth, double seconds);

/// Ends all stalls ordered up to now, also those whose call has not been made.
void release_stalls();

/// From now on every call but those for versions, error texts and the last error returns `code`.
/// Queued work is dropped for good, waiting calls return, release calls still release.
void lose_device(int code);

/// Destroys the context of a device, as cudaDeviceReset by another library does: its streams answer
/// 400 and its events 709. Queued work is still done, and memory stays until it is released.
void destroy_context(int device);

/// 1 by default, at most 16; with 0 calls return cudaErrorNoDevice.
void set_device_count(int count);

/// Makes a driver entry point one that cannot be found, or a runtime call return
/// cudaErrorCallRequiresNewerDriver, as with an old driver.
void set_missing(std::string const& symbol, bool missing);

/// 35 (no driver, or too old) or 100 (no device) from every call but those named at `lose_device`;
/// 0 ends it.
void set_no_driver(int code);

/// cudaDeviceGetAttribute gives that value for an attribute (by its number in cudaDeviceAttr), for
/// example 1 for cudaDevAttrPageableMemoryAccess as on Grace Hopper.
void set_attribute(int attribute, int value);

/// Begins to capture a stream (by its handle) in the mode "global", "thread_local" or "relaxed", as
/// another library would.
void begin_capture(std::uintptr_t stream, std::string const& mode);

/// Ends it; 0 where the capture is whole, else the code of the call.
[[nodiscard]] int end_capture(std::uintptr_t stream);

/// Queues work that takes so long on a stream (by its handle), and records it as a kernel's.
void kernel(std::string const& name, double seconds, std::uintptr_t stream);

/// Records that a range of this thread begins, or that the last one of that name ends, as NVTX
/// would.
void mark(std::string const& name, bool begin);

/// From now on the activity clock is `ns_offset` off, and moves by `ns_per_s` a second.
void skew_clock(std::int64_t ns_offset, double ns_per_s);

/// Subscribing to the records answers that code of CUPTI's (39: somebody else has; 35: not allowed;
/// 15: the library does not fit the driver); 0 ends it.
void refuse_activity(int code);

/// Enabling that kind of record answers `code`, as in a library that does not know it.
void refuse_kind(int kind, int code);

/// Another profiler of this process has subscribed, or has ended.
void other_subscriber(bool there);

/// So many records more have been dropped for want of a buffer.
void lose_records(std::size_t count);

/// Everything live now. The default streams do not count.
[[nodiscard]] std::vector<allocation> allocated();

/// How often each call was made since the last `reset`, also in vain.
[[nodiscard]] std::map<std::string, long> calls();

/// Takes back all orders, ends all stalls and captures, restores lost devices and contexts, forgets
/// the counts, and puts this thread back to device 0 without a context or a last error. What is
/// allocated stays.
void reset();

/// Carries out the orders of one line in the syntax that control.hpp describes. Throws
/// std::invalid_argument, with nothing carried out, when one cannot be read.
void configure(std::string const& line);

/// Does it, once, for PYXFER_HOSTRT.
void configure_from_environment();

}  // namespace pyxfer::hostrt
