#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace pyxfer {

/// A file could not be read, or is shorter than when its header was read.
class file_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Files that stay open while transfers read them. Any thread may read.
///
/// What the page cache holds is read from it. The rest is read past it (O_DIRECT) where the file
/// system can, because the cache would cost a copy and the memory of other programs' pages. A read
/// with RWF_NOWAIT cannot find out which: since Linux 5.9 it starts to read what is missing.
class file_set {
 public:
  struct file {
    int buffered;       ///< a descriptor, which is duplicated
    int direct;         ///< the same with O_DIRECT, or -1
    std::size_t bytes;  ///< the size when its header was read
    std::string name;   ///< for messages
  };
  /// Offset, size and address of a read past the page cache are multiples of this.
  static constexpr std::size_t alignment = 4096;

  /// Throws std::invalid_argument without files, and std::system_error if a descriptor cannot be
  /// duplicated.
  explicit file_set(std::vector<file> files);
  ~file_set();
  file_set(file_set const&) = delete;
  file_set& operator=(file_set const&) = delete;
  file_set(file_set&&) = delete;
  file_set& operator=(file_set&&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return files_.size(); }
  [[nodiscard]] std::size_t bytes_of(std::size_t index) const { return files_.at(index).bytes; }
  /// Whether the page cache holds the page of a byte, or does not show it to this user.
  [[nodiscard]] bool is_cached(std::size_t index, std::size_t offset) const;
  /// Reads bytes [offset, offset + bytes) of a file. Nothing is read beyond its end. If all three
  /// numbers are aligned and the page cache does not hold the first page, it may read past the
  /// cache, and write up to `bytes`.
  void read(std::size_t index, std::size_t offset, std::size_t bytes, void* to) const;

 private:
  [[nodiscard]] std::size_t read_directly(file const& from, std::size_t offset, std::size_t bytes,
                                          unsigned char* to) const;
  void close() noexcept;

  std::vector<file> files_;
  std::vector<void*> mappings_;  ///< for `mincore`; null if there is none
};

/// What one transfer reads from files, and where it puts it on the device. The ranges one after the
/// other are the bytes of the transfer; the parts say which of them are copied.
class file_window {
 public:
  struct range {
    std::size_t file;
    std::size_t offset;  ///< a multiple of `file_set::alignment`
    std::size_t bytes;   ///< likewise; the last one of a file may end beyond it
  };
  struct part {
    std::size_t begin;  ///< in the bytes of the transfer
    std::size_t bytes;
    std::uintptr_t device;

    [[nodiscard]] std::size_t end() const noexcept { return begin + bytes; }
  };

  /// Parts are in the order of their begins and do not overlap. Throws std::invalid_argument for
  /// other numbers.
  file_window(std::shared_ptr<file_set const> from, std::vector<range> ranges,
              std::vector<part> parts);

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Whether the page cache holds most of it, by a sample.
  [[nodiscard]] bool is_cached() const;
  /// Reads bytes [begin, end) of the transfer to contiguous memory.
  void read(std::size_t begin, std::size_t end, void* to) const;
  /// Calls `copy(offset from begin, device address, bytes)` for what [begin, end) has of each part.
  template <typename Copy>
  void each_part(std::size_t begin, std::size_t end, Copy const& copy) const {
    for (auto next = first_part_after(begin); next != parts_.end() && next->begin < end; ++next) {
      auto const from = next->begin < begin ? begin : next->begin;
      auto const to = next->end() < end ? next->end() : end;
      copy(from - begin, next->device + (from - next->begin), to - from);
    }
  }

 private:
  /// The range that a byte is in.
  [[nodiscard]] std::size_t range_of(std::size_t begin) const;
  /// The first part that ends after a byte.
  [[nodiscard]] std::vector<part>::const_iterator first_part_after(std::size_t begin) const;

  std::shared_ptr<file_set const> from_;
  std::vector<range> ranges_;
  std::vector<std::size_t> begins_;  ///< of the ranges, in the bytes of the transfer
  std::vector<part> parts_;
  std::size_t bytes_{0};
};

}  // namespace pyxfer
