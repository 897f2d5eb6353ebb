#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

/// The part of CUPTI's ABI that is used here. It is declared here because the library is found at
/// run time, and the build does not need CUPTI's headers.
namespace pyxfer::cupti {

inline constexpr std::uint32_t oldest_version = 18;      ///< CUDA 12.0
inline constexpr std::uint32_t newest_version = 139999;  ///< CUDA 13
/// From here on (CUDA 12.8) the record of a copy says how many copies it stands for.
inline constexpr std::uint32_t version_with_copy_count = 26;

enum class result : std::uint32_t {
  success = 0,
  invalid_parameter = 1,
  invalid_operation = 7,
  limit_reached = 12,  ///< reading a buffer: no more records
  not_compatible = 14,
  not_initialized = 15,
  invalid_kind = 21,
  insufficient_privileges = 35,
  multiple_subscribers = 39,
  virtualized_insufficient_privileges = 40,
  unknown = 999,
};

enum class activity_kind : std::uint32_t {
  invalid = 0,
  copy = 1,
  set = 2,
  driver_call = 4,
  runtime_call = 5,
  kernel = 10,
  marker = 12,
  overhead = 17,
  peer_copy = 22,
  memory = 49,
};

enum class domain : std::uint32_t { driver = 1, runtime = 2 };

inline constexpr std::uint32_t flush_forced = 1;
inline constexpr std::uint32_t native_thread_ids = 1;
inline constexpr std::uint32_t object_is_thread = 2;

inline constexpr std::uint8_t asynchronous = 1;  ///< a flag of copies and sets
inline constexpr std::uint32_t marker_instant = 1;
inline constexpr std::uint32_t marker_begin = 2;
inline constexpr std::uint32_t marker_end = 4;
inline constexpr std::uint32_t memory_allocated = 1;
inline constexpr std::uint32_t memory_released = 2;

struct activity;

using subscriber = struct opaque_subscriber*;
using callback = void (*)(void* user, domain from, std::uint32_t callback, void const* data);
using buffer_requested = void (*)(std::uint8_t** buffer, std::size_t* bytes, std::size_t* records);
using buffer_completed = void (*)(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                                  std::size_t bytes, std::size_t valid_bytes);

/// The functions that are used, by CUPTI's names without the prefix.
struct functions {
  result (*get_version)(std::uint32_t* version);
  result (*get_result_string)(result code, char const** text);
  result (*subscribe)(subscriber* made, callback called, void* user);
  result (*unsubscribe)(subscriber made);
  result (*register_callbacks)(buffer_requested requested, buffer_completed completed);
  result (*enable)(activity_kind kind);
  result (*disable)(activity_kind kind);
  result (*flush_all)(std::uint32_t flags);
  result (*get_next_record)(std::uint8_t* buffer, std::size_t valid_bytes, activity** record);
  result (*get_dropped)(CUcontext context, std::uint32_t stream, std::size_t* dropped);
  result (*get_timestamp)(std::uint64_t* timestamp);
  result (*get_callback_name)(domain of, std::uint32_t callback, char const** name);
  result (*get_thread_id_type)(std::uint32_t* type);
  result (*set_thread_id_type)(std::uint32_t type);
  /// Both are null before CUDA 12.6.
  result (*enable_runtime_api)(std::uint32_t callback, std::uint8_t enabled);
  result (*enable_driver_api)(std::uint32_t callback, std::uint8_t enabled);
};

}  // namespace pyxfer::cupti
