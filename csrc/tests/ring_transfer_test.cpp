#include "ring/transfer.hpp"

#include "ring_support.hpp"

#include <stdexcept>
#include <thread>

namespace pyxfer::tests {
namespace {

constexpr std::size_t chunks = 100;

/// A transfer of a hundred chunks, which moves no memory.
class ring_transfer : public ::testing::Test {
 protected:
  array source_{chunks * 4096};
  layout view_{source_.view()};
  staging_request request_{direction::h2d, view_, 0x10000, nullptr, std::nullopt, false};
  std::atomic<bool> cancelled_{false};
  transfer made_{request_,
                 {view_.bytes(), {4, 4096, 2, fill_kind::plain, 0}},
                 fill_kernel_of(fill_kind::plain).copy,
                 cancelled_};
};

TEST_F(ring_transfer, gives_each_chunk_to_one_of_its_threads) {
  std::array<std::vector<std::size_t>, 4> claimed;
  std::vector<std::thread> threads;
  threads.reserve(claimed.size());
  for (auto& own : claimed) {
    threads.emplace_back([&] {
      while (auto const part = made_.claim()) { own.push_back(part->first); }
    });
  }
  for (auto& thread : threads) { thread.join(); }
  std::vector<std::size_t> all;
  for (auto const& own : claimed) { all.insert(all.end(), own.begin(), own.end()); }
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), chunks);
  for (std::size_t i = 0; i < chunks; ++i) { EXPECT_EQ(all[i], i); }
}

TEST_F(ring_transfer, gives_several_adjacent_chunks_beside_the_work_of_the_caller) {
  staging_request beside{direction::h2d, view_, 0x10000, nullptr, std::nullopt, true, true};
  transfer made{beside,
                {view_.bytes(), {4, 4096, 2, fill_kind::plain, 0}},
                fill_kernel_of(fill_kind::plain).copy,
                cancelled_};
  std::size_t next = 0;
  while (auto const taken = made.claim()) {
    EXPECT_EQ(taken->first, next);
    EXPECT_EQ(taken->last, std::min(chunks, next + chunks / 8));
    next = taken->last;
  }
  EXPECT_EQ(next, chunks);
}

TEST_F(ring_transfer, computes_the_address_and_the_content_of_a_chunk) {
  bytes slot(4096);
  int copies = 0;
  made_.each_copy({2, 8192, 12288}, [&](std::size_t at, std::uintptr_t device, std::size_t count) {
    ++copies;
    EXPECT_EQ(at, 0U);
    EXPECT_EQ(device, 0x10000U + 8192);
    EXPECT_EQ(count, 4096U);
  });
  EXPECT_EQ(copies, 1);
  made_.fill({2, 8192, 12288}, slot.data());
  auto const expected = source_.contents();
  EXPECT_EQ(std::memcmp(slot.data(), expected.data() + 8192, 4096), 0);
  bytes const other(4096, 0x11);
  made_.empty({0, 0, 4096}, other.data());
  EXPECT_EQ(std::memcmp(source_.memory().data(), other.data(), 4096), 0);
}

TEST_F(ring_transfer, gives_no_chunk_when_it_is_cancelled) {
  EXPECT_TRUE(made_.claim());
  cancelled_ = true;
  EXPECT_FALSE(made_.claim());
}

TEST_F(ring_transfer, keeps_the_first_error_and_stops) {
  EXPECT_NO_THROW(made_.rethrow());
  for (auto const* const text : {"first", "second"}) {
    try {
      throw std::runtime_error(text);
    } catch (...) { made_.fail(); }
  }
  EXPECT_TRUE(made_.is_stopped());
  EXPECT_FALSE(made_.is_cancelled());
  EXPECT_EQ(text_of<std::runtime_error>([this] { made_.rethrow(); }), "first");
}

TEST_F(ring_transfer, is_cancelled_by_an_interruption_that_it_polls_periodically) {
  int asked = 0;
  interruption const third_time{[&] { return ++asked == 3; }};
  staging_request request = request_;
  request.interrupted = &third_time;
  transfer interrupted{request,
                       {view_.bytes(), {4, 4096, 2, fill_kind::plain, 0}},
                       fill_kernel_of(fill_kind::plain).copy,
                       cancelled_};
  long looks = 0;
  for (; !interrupted.is_cancelled(); ++looks) { interrupted.note_interruption(); }
  EXPECT_EQ(asked, 3);
  EXPECT_GT(looks, 3);
}

}  // namespace
}  // namespace pyxfer::tests
