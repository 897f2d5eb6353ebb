#include "ring/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
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

/// Whether the file system lacks RWF_NOWAIT or O_DIRECT.
bool is_unsupported(int code) { return code == EOPNOTSUPP || code == ENOSYS || code == EINVAL; }

}  // namespace

/// The turn of one of the threads that read past the page cache.
class file_set::direct_turn {
 public:
  explicit direct_turn(file_set const& in) : in_{in} {
    std::unique_lock held{in_.mutex_};
    in_.turn_.wait(held, [this] { return in_.readers_ < in_.direct_readers_; });
    ++in_.readers_;
  }
  ~direct_turn() {
    {
      std::scoped_lock const held{in_.mutex_};
      --in_.readers_;
    }
    in_.turn_.notify_one();
  }
  direct_turn(direct_turn const&) = delete;
  direct_turn& operator=(direct_turn const&) = delete;
  direct_turn(direct_turn&&) = delete;
  direct_turn& operator=(direct_turn&&) = delete;

 private:
  file_set const& in_;
};

file_set::file_set(std::vector<file> files, int direct_readers)
    : files_{std::move(files)}, direct_readers_{direct_readers} {
  if (files_.empty() || direct_readers < 1) {
    throw std::invalid_argument("a file set has files and at least one direct reader");
  }
  auto const given = files_;
  for (auto& each : files_) { each.buffered = each.direct = -1; }
  try {
    for (std::size_t i = 0; i < given.size(); ++i) {
      files_[i].buffered = duplicated(given[i].buffered);
      if (given[i].direct >= 0) { files_[i].direct = duplicated(given[i].direct); }
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
}

void file_set::read(std::size_t index, std::size_t offset, std::size_t bytes, void* to) const {
  auto const& from = files_.at(index);
  auto const wanted = offset < from.bytes ? std::min(bytes, from.bytes - offset) : 0;
  auto* const target = static_cast<unsigned char*>(to);
  std::size_t done = 0;
  if (from.direct >= 0 && is_aligned(offset) && is_aligned(bytes) &&
      is_aligned(reinterpret_cast<std::uintptr_t>(to))) {
    if (auto const cached = read_cached(from, offset, wanted, target)) {
      done = *cached;
      if (done < wanted) {
        done -= done % alignment;
        done += read_directly(from, offset + done, bytes - done, target + done);
      }
    }
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

/// Reads what the page cache holds, from the beginning on; nothing if the system cannot tell.
std::optional<std::size_t> file_set::read_cached(file const& from, std::size_t offset,
                                                 std::size_t bytes, unsigned char* to) const {
  std::size_t done = 0;
  while (done < bytes) {
    iovec const rest{to + done, bytes - done};
    auto const count =
        preadv2(from.buffered, &rest, 1, static_cast<off_t>(offset + done), RWF_NOWAIT);
    if (count > 0) {
      done += static_cast<std::size_t>(count);
    } else if (count == 0 || errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      if (!is_unsupported(errno)) { throw_failed(from, offset + done, errno); }
      return std::nullopt;
    }
  }
  return done;
}

/// Reads past the page cache. It stops early at the end of the file, and if the file system
/// refuses.
std::size_t file_set::read_directly(file const& from, std::size_t offset, std::size_t bytes,
                                    unsigned char* to) const {
  direct_turn const own{*this};
  std::size_t done = 0;
  while (done < bytes) {
    auto const count =
        pread(from.direct, to + done, bytes - done, static_cast<off_t>(offset + done));
    if (count > 0) {
      done += static_cast<std::size_t>(count);
      if (!is_aligned(done)) { break; }  // at the end of the file
    } else if (count == 0 || is_unsupported(errno)) {
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

void file_window::read(std::size_t begin, std::size_t end, void* to) const {
  auto const after = std::upper_bound(begins_.begin(), begins_.end(), begin);
  for (auto at = static_cast<std::size_t>(after - begins_.begin()) - 1; begin < end; ++at) {
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
