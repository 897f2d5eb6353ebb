#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace pyxfer {

/// What the host side of a copy is; the words are those of the documents.
enum class memory_kind { pageable, pinned, registered, write_combined };

[[nodiscard]] memory_kind memory_kind_of(std::string const& word);

/// What the driver knows of memory. A copy engine reads and writes page-locked memory itself,
/// whoever has locked it, if one allocation or one registration holds all of it: the driver refuses
/// to copy what begins or ends in one that holds less (`partly_locked`). Memory of the host
/// runtime's device can be read as the host's, too, and is yet no source of a copy from the host.
enum class known_as { pageable, page_locked, partly_locked, of_device };

[[nodiscard]] known_as known_memory(std::uintptr_t address, std::size_t bytes);

/// Host memory of one kind, its pages touched, page-aligned.
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
  /// Seconds that the page-locking call took; zero for pageable memory. Pages of registered memory
  /// were touched before, pages of pinned memory are made by the call.
  [[nodiscard]] double locking_s() const noexcept { return locking_s_; }

  /// Give the pages of a range back to the system, so that its next use touches them first.
  /// Pageable memory only.
  void forget(std::size_t offset, std::size_t bytes);

  /// Release it; of several threads that call this, one does.
  void close();
  /// Leave it to the end of the process: a copy may still be under way.
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
