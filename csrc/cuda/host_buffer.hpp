#pragma once

#include <atomic>
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

/// Owns page-aligned host memory of one kind, whose pages have been touched.
class host_buffer {
 public:
  host_buffer(std::size_t bytes, memory_kind kind, int device);
  ~host_buffer();
  host_buffer(host_buffer&& other) noexcept;
  host_buffer& operator=(host_buffer&& other) = delete;
  host_buffer(host_buffer const&) = delete;
  host_buffer& operator=(host_buffer const&) = delete;

  [[nodiscard]] std::uintptr_t address() const noexcept {
    return reinterpret_cast<std::uintptr_t>(data_.load());
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] memory_kind kind() const noexcept { return kind_; }
  /// Duration of the page-locking call in seconds; zero for pageable memory. Pages of registered
  /// memory were touched before the call; pages of pinned memory are allocated by it.
  [[nodiscard]] double locking_s() const noexcept { return locking_s_; }

  /// Gives the pages of a range back to the system, so that its next use touches new pages. For
  /// pageable memory only.
  void forget(std::size_t offset, std::size_t bytes);

  /// Releases it. If several threads call this, one of them does.
  void close();
  /// Leaves it to the end of the process, because a copy may still be under way.
  void abandon() noexcept { data_ = nullptr; }

 private:
  void map_pages();
  void lock_pages();
  void release(void* data);

  std::size_t size_;
  memory_kind kind_;
  int device_;
  std::atomic<void*> data_{};
  double locking_s_{};
};

}  // namespace pyxfer
