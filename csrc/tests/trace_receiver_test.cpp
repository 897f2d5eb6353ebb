#include "trace/receiver.hpp"

#include "trace_support.hpp"

#include <cstring>
#include <set>
#include <thread>

namespace pyxfer::trace::tests {
namespace {

class trace_receiver : public trace_test {
 protected:
  void SetUp() override {
    trace_test::SetUp();
    ASSERT_TRUE(claim());
    auto const call = host_functions();
    attach(std::make_shared<intake const>(intake{call, parser{28, call}, into_}));
  }

  void TearDown() override {
    release();
    trace_test::TearDown();
  }

  static std::uint8_t* lent() {
    std::uint8_t* buffer = nullptr;
    std::size_t bytes = 1;
    std::size_t records = 1;
    lend_buffer(&buffer, &bytes, &records);
    EXPECT_EQ(bytes, buffer == nullptr ? 0 : buffer_pool::buffer_bytes);
    EXPECT_EQ(records, 0U);
    return buffer;
  }

  static std::size_t write_copy(std::uint8_t* buffer) {
    cupti::copy_activity raw{};
    raw.kind = cupti::activity_kind::copy;
    std::memcpy(buffer, &raw, sizeof raw);
    return sizeof raw;
  }

  static void hand_over(std::uint8_t* buffer, std::size_t valid_bytes) {
    receive_buffer(nullptr, 0, buffer, buffer_pool::buffer_bytes, valid_bytes);
  }

  std::shared_ptr<gathering> into_ = std::make_shared<gathering>(much);
};

TEST_F(trace_receiver, reads_the_buffers_that_it_lent) {
  auto* const buffer = lent();
  hand_over(buffer, write_copy(buffer));
  EXPECT_EQ(into_->take().records.size(), 1U);
}

TEST_F(trace_receiver, ignores_the_buffers_of_other_profilers) {
  std::vector<std::uint8_t> strange(1024);
  hand_over(strange.data(), write_copy(strange.data()));
  EXPECT_TRUE(into_->take().records.empty());
}

TEST_F(trace_receiver, lends_nothing_after_release) {
  release();
  EXPECT_EQ(lent(), nullptr);
}

TEST_F(trace_receiver, drops_records_that_come_back_after_release) {
  auto* const buffer = lent();
  auto const bytes = write_copy(buffer);
  release();
  hand_over(buffer, bytes);
  EXPECT_TRUE(into_->take().records.empty());
}

/// CUPTI may hand over buffers in several threads at a time. The thread that takes the records has
/// nothing else in common with them, so that only a lock orders it after them.
TEST_F(trace_receiver, reads_the_buffers_of_several_threads) {
  constexpr std::size_t times = 100;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (std::size_t n = 0; n < times; ++n) {
        auto* const buffer = lent();
        hand_over(buffer, write_copy(buffer));
      }
    });
  }
  std::size_t found = 0;
  while (found < 4 * times) {
    found += into_->take().records.size();
    std::this_thread::yield();
  }
  for (auto& thread : threads) { thread.join(); }
  EXPECT_EQ(found, 4 * times);
}

TEST_F(trace_receiver, can_be_claimed_once) { EXPECT_FALSE(claim()); }

TEST(trace_buffers, are_reused) {
  buffer_pool pool;
  pool.prepare(1);
  auto* const first = pool.lend();
  pool.take_back(first);
  EXPECT_EQ(pool.lend(), first);
}

TEST(trace_buffers, are_allocated_on_demand_up_to_a_limit) {
  buffer_pool pool;
  pool.prepare(2);
  std::set<std::uint8_t*> lent;
  for (std::size_t i = 0; i < buffer_pool::most_buffers; ++i) { lent.insert(pool.lend()); }
  EXPECT_EQ(lent.size(), buffer_pool::most_buffers);
  EXPECT_EQ(lent.count(nullptr), 0U);
  EXPECT_EQ(pool.lend(), nullptr);
  pool.take_back(*lent.begin());
  EXPECT_EQ(pool.lend(), *lent.begin());
}

TEST(trace_buffers, are_aligned_for_any_record) {
  buffer_pool pool;
  pool.prepare(1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pool.lend()) % 8, 0U);
}

TEST(trace_buffers, of_another_owner_are_not_taken_back) {
  buffer_pool pool;
  pool.prepare(1);
  std::uint8_t strange = 0;
  EXPECT_FALSE(pool.is_lent(&strange));
  pool.take_back(&strange);
  EXPECT_NE(pool.lend(), &strange);
}

TEST(trace_buffers, that_are_not_lent_can_be_freed) {
  buffer_pool pool;
  pool.prepare(3);
  auto* const lent = pool.lend();
  pool.shrink();
  EXPECT_TRUE(pool.is_lent(lent));
  pool.take_back(lent);
  EXPECT_EQ(pool.lend(), lent);
}

}  // namespace
}  // namespace pyxfer::trace::tests
