#pragma once

#include "cuda/owned_handle.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace pyxfer {

/// The kind of host memory; the words are those of the documents.
enum class memory_kind { pageable, pinned, registered, write_combined };

[[nodiscard]] memory_kind memory_kind_of(std::string const& word);

/// What the driver knows about a range of memory.
///
/// A copy engine accesses the range directly if one allocation or registration holds all of it,
/// also one of another library (`page_locked`). If one holds only its beginning, the driver refuses
/// to copy the range (`partly_locked`). With the host runtime, `of_device` can be read by the host
/// too, but is not the source of a copy from the host.
enum class known_as { pageable, page_locked, partly_locked, of_device };

[[nodiscard]] known_as known_memory(std::uintptr_t address, std::size_t bytes);

/// Owns memory, or its page lock.
class owned_memory : public owned_handle<void*> {
 public:
  [[nodiscard]] std::uintptr_t address() const noexcept {
    return reinterpret_cast<std::uintptr_t>(handle());
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 protected:
  owned_memory(std::size_t bytes, int device, release_call by) noexcept
      : owned_handle{device, by}, size_{bytes} {}

 private:
  std::size_t size_;
};

/// Owns device memory.
class device_buffer : public owned_memory {
 public:
  device_buffer(std::size_t bytes, int device);
};

/// Owns page-aligned host memory of one kind, whose pages have been touched.
class host_buffer : public owned_memory {
 public:
  host_buffer(std::size_t bytes, memory_kind kind, int device);
  host_buffer(host_buffer&& other) noexcept = default;
  ~host_buffer() {
    release_noexcept([this] { close(); });
  }
  host_buffer& operator=(host_buffer&& other) = delete;
  host_buffer(host_buffer const&) = delete;
  host_buffer& operator=(host_buffer const&) = delete;

  [[nodiscard]] memory_kind kind() const noexcept { return kind_; }
  /// Duration of the page-locking call in seconds; zero for pageable memory. Pages of registered
  /// memory were touched before the call; pages of pinned memory are allocated by it.
  [[nodiscard]] double locking_s() const noexcept { return locking_s_; }

  /// Gives the pages of a range back to the system, so that its next use touches new pages. For
  /// pageable memory only.
  void forget(std::size_t offset, std::size_t bytes);

  /// As for every owner; its pages are also unmapped.
  void close();

 private:
  void map_pages();
  void lock_pages();

  memory_kind kind_;
  double locking_s_{};
};

/// Page-locks memory of another owner until it is closed. The memory must live that long. Its first
/// and its last page are locked as a whole.
class registration : public owned_memory {
 public:
  /// Memory that is not `writeable` may be mapped read-only. It is then locked for copies to a
  /// device, if the platform supports that.
  registration(std::uintptr_t address, std::size_t bytes, int device, bool writeable = true);
};

}  // namespace pyxfer
