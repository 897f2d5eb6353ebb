#include "ring/files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

namespace pyxfer {
namespace {

bool is_aligned(std::uintptr_t number) { return number % file_set::alignment == 0; }

int duplicated(int descriptor) {
  auto const made = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (made < 0) {
    throw std::system_error(errno, std::generic_category(), "a file cannot be kept open");
  }
  return made;
}

[[noreturn]] void throw_failed(file_set::file const& from, std::size_t offset, int code) {
  throw file_error(from.name + " cannot be read at byte " + std::to_string(offset) + ": " +
                   std::generic_category().message(code) + ".");
}

[[noreturn]] void throw_cut_short(file_set::file const& from) {
  struct stat now{};
  auto const known = fstat(from.buffered, &now) == 0;
  throw file_error(from.name + " was cut short while it was read: it had " +
                   std::to_string(from.bytes) + " bytes" +
                   (known ? ", and now has " + std::to_string(now.st_size) : "") + ".");
}

/// A mapping through which nothing is read; null if the system has none for this file.
void* mapped(int descriptor, std::size_t bytes) {
  auto* const made = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, descriptor, 0);
  return made == MAP_FAILED ? nullptr : made;
}

}  // namespace

file_set::file_set(std::vector<file> files) : files_{std::move(files)} {
  if (files_.empty()) { throw std::invalid_argument("a file set has files"); }
  auto const given = files_;
  for (auto& each : files_) { each.buffered = each.direct = -1; }
  mappings_.resize(files_.size());
  try {
    for (std::size_t i = 0; i < given.size(); ++i) {
      files_[i].buffered = duplicated(given[i].buffered);
      if (given[i].direct >= 0) {
        files_[i].direct = duplicated(given[i].direct);
        mappings_[i] = mapped(files_[i].buffered, files_[i].bytes);
      }
    }
  } catch (...) {
    close();
    throw;
  }
}

file_set::~file_set() { close(); }

void file_set::close() noexcept {
  for (auto const& each : files_) {
    if (each.buffered >= 0) { ::close(each.buffered); }
    if (each.direct >= 0) { ::close(each.direct); }
  }
  for (std::size_t i = 0; i < mappings_.size(); ++i) {
    if (mappings_[i] != nullptr) { munmap(mappings_[i], files_[i].bytes); }
  }
}

void file_set::read(std::size_t index, std::size_t offset, std::size_t bytes, void* to) const {
  auto const& from = files_.at(index);
  auto const wanted = offset < from.bytes ? std::min(bytes, from.bytes - offset) : 0;
  auto* const target = static_cast<unsigned char*>(to);
  std::size_t done = 0;
  if (wanted != 0 && is_aligned(offset) && is_aligned(bytes) &&
      is_aligned(reinterpret_cast<std::uintptr_t>(to)) && !is_cached(index, offset)) {
    done = read_directly(from, offset, bytes, target);
  }
  while (done < wanted) {
    auto const count =
        pread(from.buffered, target + done, wanted - done, static_cast<off_t>(offset + done));
    if (count == 0) { throw_cut_short(from); }
    if (count > 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      throw_failed(from, offset + done, errno);
    }
  }
}

bool file_set::is_cached(std::size_t index, std::size_t offset) const {
  if (mappings_[index] == nullptr) { return true; }
  static auto const page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  unsigned char shown = 0;
  auto* const at = static_cast<unsigned char*>(mappings_[index]) + (offset - offset % page);
  return mincore(at, 1, &shown) != 0 || (shown & 1U) != 0;
}

/// Reads past the page cache. It stops early at the end of the file, and if the file system
/// refuses.
std::size_t file_set::read_directly(file const& from, std::size_t offset, std::size_t bytes,
                                    unsigned char* to) const {
  std::size_t done = 0;
  while (done < bytes) {
    auto const count =
        pread(from.direct, to + done, bytes - done, static_cast<off_t>(offset + done));
    if (count > 0) {
      done += static_cast<std::size_t>(count);
      if (!is_aligned(done)) { break; }  // at the end of the file
    } else if (count == 0 || errno == EINVAL || errno == EOPNOTSUPP) {
      break;
    } else if (errno != EINTR) {
      throw_failed(from, offset + done, errno);
    }
  }
  return done;
}

file_window::file_window(std::shared_ptr<file_set const> from, std::vector<range> ranges,
                         std::vector<part> parts)
    : from_{std::move(from)}, ranges_{std::move(ranges)}, parts_{std::move(parts)} {
  begins_.reserve(ranges_.size());
  for (auto const& each : ranges_) {
    constexpr auto most = std::numeric_limits<std::size_t>::max() / 4;
    if (each.file >= from_->size() || !is_aligned(each.offset) || !is_aligned(each.bytes) ||
        each.bytes == 0 || each.offset > most || each.bytes > most - bytes_) {
      throw std::invalid_argument("a range of a file is aligned, and in one of the files");
    }
    begins_.push_back(bytes_);
    bytes_ += each.bytes;
  }
  std::size_t last = 0;
  for (auto const& each : parts_) {
    if (each.begin < last || each.bytes > bytes_ || each.begin > bytes_ - each.bytes ||
        each.device == 0) {
      throw std::invalid_argument("parts lie within the ranges, in order, and do not overlap");
    }
    last = each.end();
  }
}

bool file_window::is_cached() const {
  if (ranges_.empty()) { return true; }
  constexpr std::size_t samples = 32;
  std::size_t cached = 0;
  for (std::size_t i = 0; i < samples; ++i) {
    auto const begin = bytes_ / samples * i;
    auto const at = range_of(begin);
    if (from_->is_cached(ranges_[at].file, ranges_[at].offset + (begin - begins_[at]))) {
      ++cached;
    }
  }
  return cached > samples / 2;
}

std::size_t file_window::range_of(std::size_t begin) const {
  auto const after = std::upper_bound(begins_.begin(), begins_.end(), begin);
  return static_cast<std::size_t>(after - begins_.begin()) - 1;
}

void file_window::read(std::size_t begin, std::size_t end, void* to) const {
  for (auto at = range_of(begin); begin < end; ++at) {
    auto const& each = ranges_[at];
    auto const skipped = begin - begins_[at];
    auto const count = std::min(end - begin, each.bytes - skipped);
    from_->read(each.file, each.offset + skipped, count, to);
    to = static_cast<unsigned char*>(to) + count;
    begin += count;
  }
}

std::vector<file_window::part>::const_iterator file_window::first_part_after(
    std::size_t begin) const {
  return std::partition_point(parts_.begin(), parts_.end(),
                              [begin](part const& each) { return each.end() <= begin; });
}

}  // namespace pyxfer
