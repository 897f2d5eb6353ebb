#include "trace/gathering.hpp"

#include "trace_support.hpp"

#include <cstring>
#include <thread>

namespace pyxfer::trace::tests {
namespace {

/// A buffer like one that CUPTI hands over.
class filled_buffer {
 public:
  template <typename Raw>
  void add(Raw const& raw) {
    auto const begin = bytes_.size();
    bytes_.resize(begin + hostrt::record_bytes(raw.kind));
    std::memcpy(bytes_.data() + begin, &raw, sizeof raw);
  }

  void add_kind(std::uint32_t kind) {
    bytes_.resize(bytes_.size() + 8);
    std::memcpy(bytes_.data() + bytes_.size() - 8, &kind, sizeof kind);
  }

  void read_into(gathering& into) {
    auto const call = host_functions();
    into.read(call, parser{28, call}, bytes_.data(), bytes_.size());
  }

 private:
  std::vector<std::uint8_t> bytes_;
};

cupti::copy_activity copy_at(std::uint64_t start) {
  cupti::copy_activity raw{};
  raw.kind = cupti::activity_kind::copy;
  raw.start = start;
  raw.end = start + 1;
  return raw;
}

cupti::kernel_activity kernel() {
  cupti::kernel_activity raw{};
  raw.kind = cupti::activity_kind::kernel;
  raw.name = "add";
  return raw;
}

TEST(trace_gathering, keeps_the_records_of_a_buffer_in_order) {
  gathering into{much};
  filled_buffer buffer;
  for (std::uint64_t i = 1; i <= 3; ++i) { buffer.add(copy_at(i)); }
  buffer.read_into(into);
  auto const found = into.take();
  ASSERT_EQ(found.records.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(found.records[i].start_ns, static_cast<std::int64_t>(i + 1));
  }
  EXPECT_TRUE(found.dropped.empty());
}

TEST(trace_gathering, counts_records_beyond_the_capacity_by_kind) {
  gathering into{2 * sizeof(record) + 1};
  filled_buffer buffer;
  for (int i = 0; i < 5; ++i) { buffer.add(copy_at(1)); }
  buffer.add(kernel());
  buffer.read_into(into);
  auto const found = into.take();
  EXPECT_EQ(found.records.size(), 2U);
  EXPECT_EQ(found.dropped, (std::map<std::string, std::size_t>{{"copies", 3}, {"kernels", 1}}));
}

TEST(trace_gathering, is_empty_after_take) {
  gathering into{sizeof(record)};
  filled_buffer buffer;
  buffer.add(kernel());
  buffer.add(kernel());
  buffer.read_into(into);
  EXPECT_EQ(into.take().names, (std::vector<std::string>{"", "add"}));
  auto const nothing = into.take();
  EXPECT_TRUE(nothing.records.empty());
  EXPECT_TRUE(nothing.dropped.empty());
  EXPECT_EQ(nothing.names, std::vector<std::string>{""});
  buffer.read_into(into);
  EXPECT_EQ(into.take().records.size(), 1U);
}

TEST(trace_gathering, counts_an_incomplete_record_as_unknown) {
  gathering into{much};
  filled_buffer buffer;
  buffer.add(copy_at(1));
  buffer.add_kind(0);  // incomplete, so reading ends here
  buffer.read_into(into);
  auto const found = into.take();
  EXPECT_EQ(found.records.size(), 1U);
  EXPECT_EQ(found.dropped, (std::map<std::string, std::size_t>{{"unknown", 1}}));
}

TEST(trace_gathering, counts_records_that_the_library_lost_as_unknown) {
  gathering into{much};
  into.lose(0);
  into.lose(40);
  into.lose(2);
  EXPECT_EQ(into.take().dropped, (std::map<std::string, std::size_t>{{"unknown", 42}}));
}

TEST(trace_gathering, reads_an_empty_buffer) {
  gathering into{much};
  filled_buffer{}.read_into(into);
  EXPECT_TRUE(into.take().dropped.empty());
}

TEST(trace_gathering, converts_every_record_once) {
  gathering into{much};
  filled_buffer buffer;
  buffer.add(copy_at(1000));
  buffer.read_into(into);
  clock_comparison const by_a_hundred{1100, 1000, 0};
  into.convert(by_a_hundred, by_a_hundred);
  into.convert(by_a_hundred, by_a_hundred);
  buffer.read_into(into);
  auto const found = into.take();
  EXPECT_EQ(found.records[0].start_ns, 1100);
  EXPECT_EQ(found.converted, 1U);
  EXPECT_EQ(found.records[1].start_ns, 1000);
  buffer.read_into(into);
  into.convert(by_a_hundred, by_a_hundred);
  EXPECT_EQ(into.take().records[0].start_ns, 1100);
}

TEST(trace_gathering, leaves_unknown_times_at_zero) {
  record_table records(1);
  clock_comparison const by_a_hundred{1100, 1000, 0};
  convert_times(records, 0, by_a_hundred, by_a_hundred);
  EXPECT_EQ(records[0].start_ns, 0);
  EXPECT_EQ(records[0].end_ns, 0);
}

TEST(trace_gathering, needs_a_capacity_of_at_least_one_record) {
  EXPECT_EQ(text_of<std::invalid_argument>([] { gathering const into{63}; }),
            "a trace needs room for at least one record, 64 bytes");
}

constexpr std::int64_t second = 1'000'000'000;

/// A comparison in which the host's clock shows `host`, and the other clock is ahead of it by `by`.
clock_comparison ahead(std::int64_t host, std::int64_t by) { return {host, host + by, 0}; }

TEST(trace_clock, is_compared_within_the_reported_error) {
  constexpr std::int64_t by = 7 * second;
  auto const found = compare_clocks([] { return steady_ns() + by; });
  EXPECT_LE(std::abs(found.offset_ns() + by), found.error_ns);
}

TEST(trace_clock, is_compared_by_the_tightest_reading) {
  int readings = 0;
  std::int64_t before = 0;  // the readings of the host's clock around the fifth are between these
  std::int64_t after = 0;
  auto const found = compare_clocks([&] {
    auto const now = steady_ns();
    if (++readings == 6) { after = now; }
    if (readings != 5) { std::this_thread::sleep_for(std::chrono::milliseconds{2}); }
    if (readings == 4) { before = steady_ns(); }
    return now;
  });
  EXPECT_LE(found.error_ns, (after - before + 1) / 2);
}

TEST(trace_clock, with_a_constant_offset_is_only_moved) {
  auto const from = ahead(10 * second, 500);
  auto const to = ahead(20 * second, 500);
  EXPECT_EQ(host_time(15 * second + 500, from, to), 15 * second);
}

TEST(trace_clock, that_drifts_is_interpolated) {
  auto const from = ahead(10 * second, 0);
  auto const to = ahead(20 * second, 1000);
  EXPECT_EQ(host_time(15 * second + 500, from, to), 15 * second);
  EXPECT_EQ(host_time(12 * second + 200, from, to), 12 * second);
}

TEST(trace_clock, outside_the_comparisons_uses_the_nearer_one) {
  auto const from = ahead(10 * second, 100);
  auto const to = ahead(20 * second, 900);
  EXPECT_EQ(host_time(9 * second + 100, from, to), 9 * second);
  EXPECT_EQ(host_time(21 * second + 900, from, to), 21 * second);
}

TEST(trace_clock, that_was_set_back_uses_the_offset_that_fits) {
  auto const from = ahead(10 * second, 100 * second);
  auto const to = ahead(12 * second, 0);
  EXPECT_EQ(host_time(110 * second + 5, from, to), 10 * second + 5);
  EXPECT_EQ(host_time(12 * second - 5, from, to), 12 * second - 5);
}

TEST(trace_clock, that_was_set_forward_uses_the_offset_that_fits) {
  auto const from = ahead(10 * second, 0);
  auto const to = ahead(12 * second, 100 * second);
  EXPECT_EQ(host_time(10 * second + 5, from, to), 10 * second + 5);
  EXPECT_EQ(host_time(112 * second - 5, from, to), 12 * second - 5);
}

TEST(trace_clock, was_not_set_if_it_moved_by_less_than_the_error) {
  clock_comparison const from{1000, 1000, 30};
  clock_comparison const to{1100, 1120, 30};
  EXPECT_EQ(host_time(1060, from, to), 1050);
}

TEST(trace_clock, leaves_an_unknown_time_at_zero) {
  EXPECT_EQ(host_time(0, ahead(10 * second, 100), ahead(20 * second, 900)), 0);
}

}  // namespace
}  // namespace pyxfer::trace::tests
