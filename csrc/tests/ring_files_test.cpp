#include "ring/files.hpp"

#include "copy/gate.hpp"
#include "cuda/cleanup.hpp"
#include "cuda/error.hpp"
#include "cuda/memory.hpp"
#include "cuda/stream.hpp"
#include "ring/ring.hpp"
#include "ring_support.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace pyxfer::tests {
namespace {

using ring_files = engine_test;
using range = file_window::range;
using part = file_window::part;

constexpr std::size_t page = file_set::alignment;

/// A file with random bytes in a folder, removed at the end.
class stored {
 public:
  explicit stored(bytes contents, std::string folder = "/tmp") : contents_{std::move(contents)} {
    path_ = folder + "/pyxfer-files-XXXXXX";
    auto const made = mkstemp(path_.data());
    EXPECT_GE(made, 0);
    EXPECT_EQ(write(made, contents_.data(), contents_.size()),
              static_cast<ssize_t>(contents_.size()));
    fsync(made);
    close(made);
    buffered_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    direct_ = open(path_.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  }
  ~stored() {
    close(buffered_);
    if (direct_ >= 0) { close(direct_); }
    unlink(path_.c_str());
  }
  stored(stored const&) = delete;
  stored& operator=(stored const&) = delete;
  stored(stored&&) = delete;
  stored& operator=(stored&&) = delete;

  [[nodiscard]] file_set::file view(bool direct = false) const {
    return {buffered_, direct ? direct_ : -1, contents_.size(), "weights.bin"};
  }
  [[nodiscard]] bytes const& contents() const { return contents_; }
  void evict() const { EXPECT_EQ(posix_fadvise(buffered_, 0, 0, POSIX_FADV_DONTNEED), 0); }
  /// How many of its pages the page cache holds.
  [[nodiscard]] std::size_t cached_pages() const {
    auto* const mapping = mmap(nullptr, contents_.size(), PROT_READ, MAP_SHARED, buffered_, 0);
    std::vector<unsigned char> held((contents_.size() + page - 1) / page);
    EXPECT_EQ(mincore(mapping, contents_.size(), held.data()), 0);
    munmap(mapping, contents_.size());
    return static_cast<std::size_t>(
        std::count_if(held.begin(), held.end(), [](auto each) { return (each & 1U) != 0; }));
  }
  [[nodiscard]] bool is_readable_directly() const { return direct_ >= 0; }
  void cut_to(std::size_t bytes) const {
    EXPECT_EQ(truncate(path_.c_str(), static_cast<off_t>(bytes)), 0);
  }

 private:
  std::string path_;
  bytes contents_;
  int buffered_;
  int direct_;
};

std::shared_ptr<file_set const> set_of(std::vector<file_set::file> files) {
  return std::make_shared<file_set const>(std::move(files));
}

bytes held_by(device_buffer const& memory, std::size_t count) {
  auto const* const first = inside(memory.address());
  return {first, first + count};
}

std::string what_of(ticket const& running) {
  try {
    static_cast<void>(running.result(30));
  } catch (std::exception const& error) { return error.what(); }
  return "";
}

ring_settings with(int threads, int slots = 8, std::size_t chunk_bytes = page) {
  return {threads, chunk_bytes, slots, fill_kind::streaming, 20};
}

TEST_F(ring_files, put_each_part_in_its_place_with_every_number_of_threads) {
  stored const first{random_bytes(50 * page + 77, 1)};
  stored const second{random_bytes(9 * page, 2)};
  for (auto const direct : {false, true}) {
    auto const from = set_of({first.view(direct), second.view(direct)});
    device_buffer const memory{100 * page, 0};
    // Two ranges with a gap, the second up to the end of its file, and all of the other file.
    std::vector<range> const ranges{
        {0, page, 3 * page}, {0, 10 * page, 41 * page}, {1, 0, 9 * page}};
    std::vector<std::pair<part, bytes>> wanted;
    auto const want = [&](std::size_t begin, std::size_t count, std::size_t at, stored const& of,
                          std::size_t offset) {
      auto const begins = of.contents().begin() + static_cast<std::ptrdiff_t>(offset);
      wanted.push_back({{begin, count, memory.address() + at},
                        {begins, begins + static_cast<std::ptrdiff_t>(count)}});
    };
    want(13, 100, 90 * page, first, page + 13);
    want(113, 2 * page, 3, first, page + 113);
    want(3 * page, 1, 95 * page, first, 10 * page);
    want(3 * page + 8, 40 * page + 69, 5 * page, first, 10 * page + 8);
    want(44 * page, 9 * page, 60 * page, second, 0);
    std::vector<part> parts;
    for (auto const& each : wanted) { parts.push_back(each.first); }
    for (int threads = 1; threads <= 10; threads += 3) {
      SCOPED_TRACE(std::to_string(threads) + (direct ? " threads, direct" : " threads"));
      if (direct) { first.evict(); }
      std::fill_n(inside(memory.address()), 100 * page, static_cast<unsigned char>(0x5A));
      ring made{0, with(threads)};
      auto const window = std::make_shared<file_window const>(from, ranges, parts);
      EXPECT_EQ(window->bytes(), 53 * page);
      static_cast<void>(made.start_read(window, std::nullopt).result(30));
      bytes expected(100 * page, 0x5A);
      for (auto const& [to, contents] : wanted) {
        std::copy(contents.begin(), contents.end(),
                  expected.begin() + static_cast<std::ptrdiff_t>(to.device - memory.address()));
      }
      EXPECT_EQ(held_by(memory, 100 * page), expected);
    }
  }
}

TEST_F(ring_files, read_the_same_bytes_cached_and_past_the_cache) {
  stored const source{random_bytes(6 * page + 5, 3), "."};
  for (auto const direct : {false, true}) {
    auto const from = set_of({source.view(direct)});
    std::vector<unsigned char> raw(9 * page);
    auto* const aligned = raw.data() + (page - reinterpret_cast<std::uintptr_t>(raw.data()) % page);
    if (direct) { source.evict(); }
    from->read(0, page, 6 * page, aligned);
    EXPECT_TRUE(std::equal(aligned, aligned + 5 * page + 5,
                           source.contents().begin() + static_cast<std::ptrdiff_t>(page)));
    from->read(0, 3, 100, aligned + 1);  // not aligned
    EXPECT_TRUE(std::equal(aligned + 1, aligned + 101, source.contents().begin() + 3));
    from->read(0, 7 * page, page, aligned);  // beyond the end
  }
}

TEST_F(ring_files, leave_the_page_cache_as_it_was) {
  stored const source{random_bytes(256 * page, 4), "."};
  source.evict();
  if (!source.is_readable_directly() || source.cached_pages() != 0) {
    GTEST_SKIP() << "this file system reads nothing past the page cache";
  }
  auto const from = set_of({source.view(true)});
  file_window const window{from, {{0, 0, 128 * page}, {0, 128 * page, 128 * page}}, {}};
  EXPECT_FALSE(window.is_cached());
  std::vector<unsigned char> raw(65 * page);
  auto* const aligned = raw.data() + (page - reinterpret_cast<std::uintptr_t>(raw.data()) % page);
  for (std::size_t at = 0; at < 256; at += 64) { from->read(0, at * page, 64 * page, aligned); }
  EXPECT_EQ(source.cached_pages(), 0U);
  from->read(0, 13, 100, aligned);  // through the cache
  EXPECT_NE(source.cached_pages(), 0U);
  from->read(0, 0, 64 * page, aligned);
  EXPECT_TRUE(std::equal(aligned, aligned + 64 * page, source.contents().begin()));
  for (std::size_t at = 1; at < 200 * page; at += page) { from->read(0, at, 1, aligned); }
  EXPECT_TRUE(window.is_cached());
  EXPECT_TRUE((file_window{from, {}, {}}).is_cached());
}

TEST_F(ring_files, say_that_a_file_was_cut_short) {
  stored const source{random_bytes(20 * page, 4)};
  for (auto const direct : {false, true}) {
    auto const from = set_of({source.view(direct)});
    source.cut_to(3 * page + 10);
    device_buffer const memory{20 * page, 0};
    ring made{0, with(3)};
    auto const window =
        std::make_shared<file_window const>(from, std::vector<range>{{0, 0, 20 * page}},
                                            std::vector<part>{{0, 20 * page, memory.address()}});
    auto const text = what_of(made.start_read(window, std::nullopt));
    EXPECT_EQ(
        text,
        "weights.bin was cut short while it was read: it had 81920 bytes, and now has 12298.");
    EXPECT_EQ(what_of(made.start_read(std::make_shared<file_window const>(
                                          from, std::vector<range>{{0, 0, page}},
                                          std::vector<part>{{0, page, memory.address()}}),
                                      std::nullopt)),
              "");  // the ring goes on
  }
}

TEST_F(ring_files, say_which_byte_cannot_be_read) {
  auto const written = open("/tmp", O_RDONLY | O_CLOEXEC);  // a folder cannot be read
  auto const from = set_of({{written, -1, page, "folder"}});
  close(written);  // the set has its own
  device_buffer const memory{page, 0};
  ring made{0, with(1)};
  auto const window = std::make_shared<file_window const>(
      from, std::vector<range>{{0, 0, page}}, std::vector<part>{{0, page, memory.address()}});
  EXPECT_EQ(what_of(made.start_read(window, std::nullopt)),
            "folder cannot be read at byte 0: Is a directory.");
}

TEST_F(ring_files, refuse_numbers_that_describe_no_transfer) {
  stored const source{random_bytes(2 * page, 5)};
  auto const from = set_of({source.view()});
  auto const made = [&](std::vector<range> ranges, std::vector<part> parts) {
    file_window const window{from, std::move(ranges), std::move(parts)};
  };
  EXPECT_THROW(made({{1, 0, page}}, {}), std::invalid_argument);
  EXPECT_THROW(made({{0, 1, page}}, {}), std::invalid_argument);
  EXPECT_THROW(made({{0, 0, page + 1}}, {}), std::invalid_argument);
  EXPECT_THROW(made({{0, 0, 0}}, {}), std::invalid_argument);
  EXPECT_THROW(made({{0, 0, SIZE_MAX - page + 1}}, {}), std::invalid_argument);
  EXPECT_THROW(made({{0, 0, page}}, {{0, page + 1, 1}}), std::invalid_argument);
  EXPECT_THROW(made({{0, 0, page}}, {{page, 1, 1}}), std::invalid_argument);
  EXPECT_THROW(made({{0, 0, page}}, {{0, 10, 1}, {9, 1, 1}}), std::invalid_argument);
  EXPECT_THROW(made({{0, 0, page}}, {{0, 10, 0}}), std::invalid_argument);
  EXPECT_THROW(made({{0, 0, page}}, {{SIZE_MAX, 2, 1}}), std::invalid_argument);
  EXPECT_THROW(file_set{{}}, std::invalid_argument);
  EXPECT_THROW(file_set({{-1, -1, 1, "none"}}), std::system_error);
}

TEST_F(ring_files, begin_after_the_work_of_the_callers_stream_and_end_when_cancelled) {
  stored const source{random_bytes(40 * page, 6)};
  auto const from = set_of({source.view()});
  device_buffer const memory{40 * page, 0};
  std::fill_n(inside(memory.address()), 40 * page, static_cast<unsigned char>(0));
  ring made{0, with(2)};
  auto const window =
      std::make_shared<file_window const>(from, std::vector<range>{{0, 0, 40 * page}},
                                          std::vector<part>{{0, 40 * page, memory.address()}});
  stream const own{0};
  gate held{own.view(), 60};
  auto const first = made.start_read(window, own.view());
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  EXPECT_FALSE(first.done());
  EXPECT_EQ(held_by(memory, 40 * page), bytes(40 * page, 0));
  made.cancel();
  EXPECT_THROW(static_cast<void>(first.result(30)), cancelled_error);
  EXPECT_EQ(take_cleanup_failures().size(), 1U);  // its copies still wait for the stream
  held.open();
  EXPECT_EQ(cudaStreamSynchronize(own.handle()), cudaSuccess);
  static_cast<void>(made.start_read(window, own.view()).result(30));
  EXPECT_EQ(held_by(memory, 40 * page), source.contents());
}

TEST_F(ring_files, are_read_while_the_copies_of_the_transfer_before_have_not_ended) {
  stored const source{random_bytes(2 * page, 7)};
  auto const from = set_of({source.view()});
  device_buffer const memory{2 * page, 0};
  std::fill_n(inside(memory.address()), 2 * page, static_cast<unsigned char>(0));
  ring made{0, with(2)};
  auto const page_at = [&](std::size_t at) {
    return std::make_shared<file_window const>(
        from, std::vector<range>{{0, at * page, page}},
        std::vector<part>{{0, page, memory.address() + at * page}});
  };
  stream const own{0};
  gate held{own.view(), 60};
  auto const first = made.start_read(page_at(0), own.view());
  auto const second = page_at(1);
  auto const behind = made.start_read(second, std::nullopt);
  while (second.use_count() != 1) { std::this_thread::yield(); }  // the queue has left both
  EXPECT_FALSE(first.done());
  EXPECT_FALSE(behind.done());
  EXPECT_THROW(static_cast<void>(first.result(0.01)), timeout_error);
  EXPECT_EQ(held_by(memory, 2 * page), bytes(2 * page, 0));
  held.open();
  static_cast<void>(behind.result(30));
  EXPECT_TRUE(first.done());
  static_cast<void>(first.result(30));
  EXPECT_EQ(held_by(memory, 2 * page), source.contents());
}

}  // namespace
}  // namespace pyxfer::tests
