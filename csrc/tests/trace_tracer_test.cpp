#include "trace/tracer.hpp"

#include "fork_support.hpp"
#include "trace/error.hpp"
#include "trace_support.hpp"

#include <thread>

namespace pyxfer::trace::tests {
namespace {

using trace_tracer = trace_test;

TEST_F(trace_tracer, records_activity_between_start_and_stop) {
  copied_memory memory{4096};
  auto traced = host_tracer();
  memory.copy();
  traced.start();
  memory.copy(3);
  traced.stop();
  memory.copy();
  auto const found = traced.take();
  auto const copies = of_kind(found, record_kind::copy);
  ASSERT_EQ(copies.size(), 3U);
  EXPECT_EQ(copies[0].nbytes, 4096U);
  EXPECT_EQ(copies[0].way, copy_way::d2h);
  EXPECT_EQ(copies[0].target, memory_side::pageable);
  EXPECT_TRUE(found.dropped.empty());
}

/// The copies that the replaced function below makes while copies are still recorded.
copied_memory* copied_at_the_end = nullptr;

cupti::result copy_and_disable(cupti::activity_kind kind) {
  copied_at_the_end->copy();
  return host_functions().disable(kind);
}

TEST_F(trace_tracer, keeps_records_until_recording_has_ended) {
  copied_memory memory{4096};
  copied_at_the_end = &memory;
  tracer traced{
      {host_library({{"cuptiActivityDisable", address_of(copy_and_disable)}})}, {"copies"}, much};
  traced.start();
  memory.copy();
  traced.stop();
  // The second is made while the first of the two kinds of copies is disabled.
  EXPECT_EQ(of_kind(traced.take(), record_kind::copy).size(), 2U);
}

TEST_F(trace_tracer, joins_a_copy_with_its_call) {
  copied_memory memory{4096};
  auto traced = host_tracer();
  traced.start();
  memory.copy();
  auto const found = traced.take();
  traced.stop();
  auto const copy = of_kind(found, record_kind::copy).at(0);
  auto const calls = of_kind(found, record_kind::call);
  ASSERT_EQ(names_of(found, record_kind::call),
            (std::vector<std::string>{"cuMemcpy", "cudaMemcpy"}));
  for (auto const& call : calls) {
    EXPECT_EQ(call.correlation, copy.correlation);
    EXPECT_LE(call.start_ns, copy.start_ns);
    EXPECT_GE(call.end_ns, copy.end_ns);
  }
}

TEST_F(trace_tracer, gives_times_of_the_steady_clock) {
  copied_memory memory{4096};
  auto traced = host_tracer();
  traced.start();
  auto const before = steady_ns();
  memory.copy();
  auto const after = steady_ns();
  traced.stop();
  auto const found = traced.take();
  auto const copy = of_kind(found, record_kind::copy).at(0);
  EXPECT_GE(copy.start_ns, before - found.clock_error_ns);
  EXPECT_LE(copy.end_ns, after + found.clock_error_ns);
  EXPECT_LT(copy.start_ns, copy.end_ns);
}

TEST_F(trace_tracer, corrects_a_clock_that_drifts) {
  copied_memory memory{4096};
  hostrt::skew_clock(-5'000'000'000, 400'000);  // 400 ppm
  auto traced = host_tracer({"copies"});
  auto const before = steady_ns();
  traced.start();
  auto const begun = steady_ns();
  memory.copy();
  while (steady_ns() - begun < 50'000'000) {}
  auto const late = steady_ns();
  memory.copy();
  traced.stop();
  auto const after = steady_ns();
  auto const found = traced.take();
  auto const drifted = static_cast<double>(after - before) * 400e-6;
  auto const error = 3 * found.clock_error_ns;  // of both comparisons, and of the time between them
  ASSERT_EQ(found.records.size(), 2U);
  EXPECT_GE(found.clock_drift_ns, 20'000 - error);
  EXPECT_LE(static_cast<double>(found.clock_drift_ns - error), drifted);
  EXPECT_GE(found.records.back().start_ns, late - error);
  EXPECT_GE(found.records.front().start_ns, begun - error);
}

TEST_F(trace_tracer, corrects_a_clock_that_is_set) {
  copied_memory memory{4096};
  auto traced = host_tracer({"copies"});
  traced.start();
  auto const before = steady_ns();
  memory.copy();
  hostrt::skew_clock(3'600'000'000'000, 0);
  memory.copy();
  auto const after = steady_ns();
  traced.stop();
  auto const found = traced.take();
  ASSERT_EQ(found.records.size(), 2U);
  for (auto const& copy : found.records) {
    EXPECT_GE(copy.start_ns, before - found.clock_error_ns);
    EXPECT_LE(copy.end_ns, after + found.clock_error_ns);
  }
  EXPECT_NEAR(static_cast<double>(found.clock_drift_ns), 3.6e12,
              2.0 * static_cast<double>(found.clock_error_ns));
  EXPECT_EQ(traced.take().clock_drift_ns, 0);
}

TEST_F(trace_tracer, returns_records_while_it_runs) {
  copied_memory memory{4096};
  auto traced = host_tracer({"copies"});
  traced.start();
  memory.copy();
  EXPECT_EQ(traced.take().records.size(), 1U);
  memory.copy(2);
  EXPECT_EQ(traced.take().records.size(), 2U);
  EXPECT_TRUE(traced.take().records.empty());
  traced.stop();
}

TEST_F(trace_tracer, can_be_started_again) {
  copied_memory memory{4096};
  auto traced = host_tracer({"copies"});
  for (int i = 0; i < 3; ++i) {
    traced.start();
    memory.copy();
    traced.stop();
  }
  auto const found = traced.take();
  ASSERT_EQ(found.records.size(), 3U);
  EXPECT_LT(found.records[0].end_ns, found.records[2].start_ns);
}

TEST_F(trace_tracer, can_be_stopped_if_it_does_not_run) {
  auto traced = host_tracer();
  EXPECT_NO_THROW(traced.stop());
  EXPECT_TRUE(traced.take().records.empty());
}

TEST_F(trace_tracer, restores_the_type_of_thread_ids) {
  auto const call = host_functions();
  std::uint32_t type = 99;
  auto traced = host_tracer();
  traced.start();
  ASSERT_EQ(call.get_thread_id_type(&type), cupti::result::success);
  EXPECT_EQ(type, cupti::native_thread_ids);
  traced.stop();
  ASSERT_EQ(call.get_thread_id_type(&type), cupti::result::success);
  EXPECT_EQ(type, 0U);
}

TEST_F(trace_tracer, stops_when_it_is_destroyed_while_it_runs) {
  {
    auto traced = host_tracer();
    traced.start();
  }
  EXPECT_EQ(hostrt::enabled_kinds().load(), 0U);
  auto another = host_tracer();
  EXPECT_NO_THROW(another.start());
}

TEST_F(trace_tracer, loses_no_record_of_a_buffer_that_fills) {
  copied_memory memory{8};
  auto traced = host_tracer({"copies", "calls"}, std::size_t{64} << 20U);
  traced.start();
  constexpr int times = 20'000;  // records of 96 bytes and twice 40, in buffers of 1 MiB
  memory.copy(times);
  traced.stop();
  auto const found = traced.take();
  EXPECT_EQ(found.records.size(), 3U * times);
  EXPECT_TRUE(found.dropped.empty());
}

TEST_F(trace_tracer, keeps_to_its_capacity_and_counts_the_other_records) {
  copied_memory memory{8};
  auto traced = host_tracer({"copies"}, 10 * sizeof(record));
  traced.start();
  memory.copy(25);
  traced.stop();
  auto const found = traced.take();
  EXPECT_EQ(found.records.size(), 10U);
  EXPECT_EQ(found.dropped, (std::map<std::string, std::size_t>{{"copies", 15}}));
}

TEST_F(trace_tracer, counts_records_that_the_library_dropped) {
  auto traced = host_tracer();
  hostrt::lose_records(1000);  // those of another profiler
  traced.start();
  hostrt::lose_records(7);
  traced.stop();
  EXPECT_EQ(traced.take().dropped, (std::map<std::string, std::size_t>{{"unknown", 7}}));
}

TEST_F(trace_tracer, serves_several_threads) {
  hostrt::hand_over_at_once(true);  // so that several of them hand over buffers at the same time
  auto traced = host_tracer();
  traced.start();
  std::atomic<std::size_t> taken_copies{0};
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      copied_memory memory{64};
      for (int j = 0; j < 200; ++j) {
        memory.copy();
        if (j % 20 == 0) { taken_copies += of_kind(traced.take(), record_kind::copy).size(); }
      }
    });
  }
  for (auto& thread : threads) { thread.join(); }
  traced.stop();
  taken_copies += of_kind(traced.take(), record_kind::copy).size();
  EXPECT_EQ(taken_copies, 600U);
}

TEST_F(trace_tracer, can_be_started_and_stopped_while_others_copy) {
  std::atomic<bool> done{false};
  std::atomic<int> allowed{0};  // more would fill the tracer's memory while this thread is not run
  std::thread copying{[&] {
    copied_memory memory{64};
    while (!done) {
      if (allowed > 0) {
        --allowed;
        memory.copy();
      } else {
        std::this_thread::yield();
      }
    }
  }};
  auto traced = host_tracer();
  for (int i = 0; i < 50; ++i) {
    allowed = 100;
    traced.start();
    traced.stop();
    EXPECT_TRUE(traced.take().dropped.empty());
  }
  done = true;
  copying.join();
}

using pyxfer::tests::in_forked_child;
using trace_tracer_trouble = trace_test;

std::string start_text(tracer& traced) {
  return text_of<trace_unavailable_error>([&] { traced.start(); });
}

TEST_F(trace_tracer_trouble, is_unavailable_beside_another_profiler) {
  auto traced = host_tracer();
  hostrt::other_subscriber(true);
  EXPECT_EQ(start_text(traced).rfind("another profiler is active in this process (", 0), 0U);
  hostrt::other_subscriber(false);
  EXPECT_NO_THROW(traced.start());
}

TEST_F(trace_tracer_trouble, explains_missing_privileges) {
  tracer traced{{host_library(), host_library({}, "another")}, all_words(), much};
  hostrt::refuse_activity(35);
  auto const text = start_text(traced);
  EXPECT_NE(text.find("NVreg_RestrictProfilingToAdminUsers=0"), std::string::npos);
  EXPECT_EQ(text.find("another"), std::string::npos) << text;
}

cupti::result not_initialized(cupti::subscriber* /*made*/, cupti::callback /*called*/,
                              void* /*user*/) {
  return cupti::result::not_initialized;
}

TEST_F(trace_tracer_trouble, uses_the_next_library_if_the_driver_refuses_one) {
  auto const too_new =
      host_library({{"cuptiSubscribe", address_of(not_initialized)}}, "too new a library");
  tracer traced{{too_new, host_library()}, all_words(), much};
  EXPECT_EQ(traced.library_name(), "too new a library");
  traced.start();
  EXPECT_EQ(traced.library_name(), "the host runtime");
  EXPECT_EQ(traced.version(), 28U);
}

TEST_F(trace_tracer_trouble, names_every_library_that_was_refused) {
  auto const first = host_library({{"cuptiSubscribe", address_of(not_initialized)}}, "one");
  auto const second = host_library({{"cuptiSubscribe", address_of(not_initialized)}}, "two");
  tracer traced{{first, second}, all_words(), much};
  std::string const reason =
      ": cuptiSubscribe failed with CUPTI_ERROR_NOT_INITIALIZED (15): there is no driver, or it is "
      "older than this library";
  EXPECT_EQ(start_text(traced),
            "no CUPTI library can be used here: one" + reason + "; two" + reason);
}

TEST_F(trace_tracer_trouble, leaves_nothing_enabled_after_a_refused_start) {
  auto traced = host_tracer();
  hostrt::refuse_kind(1, 7);
  EXPECT_NE(start_text(traced).find("CUPTI_ERROR_INVALID_OPERATION (7)"), std::string::npos);
  EXPECT_EQ(hostrt::enabled_kinds().load(), 0U);
  hostrt::reset();
  EXPECT_NO_THROW(traced.start());
}

cupti::result refuse_thread_ids(std::uint32_t /*type*/) { return cupti::result::invalid_parameter; }

TEST_F(trace_tracer_trouble, unsubscribes_after_a_refused_start) {
  tracer traced{
      {host_library({{"cuptiSetThreadIdType", address_of(refuse_thread_ids)}})}, {"copies"}, much};
  EXPECT_NE(start_text(traced).find("cuptiSetThreadIdType failed with"), std::string::npos);
  EXPECT_FALSE(take_cleanup_failures().empty());
  auto another = host_tracer();
  EXPECT_NO_THROW(another.start());
}

TEST_F(trace_tracer_trouble, reports_which_kinds_were_refused) {
  auto traced = host_tracer();
  hostrt::refuse_kind(49, 21);
  traced.start();
  EXPECT_EQ(traced.refused().count("allocations"), 1U);
  traced.stop();
  hostrt::reset();
  traced.start();
  EXPECT_TRUE(traced.refused().empty());
}

TEST_F(trace_tracer_trouble, is_unavailable_while_another_tracer_runs) {
  auto first = host_tracer();
  auto second = host_tracer();
  first.start();
  auto const* const busy = "pyxfer is already tracing in this process";
  EXPECT_EQ(start_text(second).rfind(busy, 0), 0U);
  EXPECT_EQ(start_text(first).rfind(busy, 0), 0U);
  first.stop();
  EXPECT_NO_THROW(second.start());
}

TEST_F(trace_tracer_trouble, cannot_be_used_after_close) {
  auto traced = host_tracer();
  traced.start();
  traced.close();
  EXPECT_EQ(hostrt::enabled_kinds().load(), 0U);
  EXPECT_NO_THROW(traced.close());
  EXPECT_NO_THROW(traced.stop());
  EXPECT_THROW(traced.start(), std::logic_error);
  EXPECT_THROW(static_cast<void>(traced.take()), std::logic_error);
}

cupti::result fail_to_flush(std::uint32_t /*flags*/) { return cupti::result::unknown; }

TEST_F(trace_tracer_trouble, ends_even_if_ending_fails) {
  tracer traced{
      {host_library({{"cuptiActivityFlushAll", address_of(fail_to_flush)}})}, {"copies"}, much};
  traced.start();
  EXPECT_EQ(text_of<trace_unavailable_error>([&] { traced.stop(); }),
            "cuptiActivityFlushAll failed with CUPTI_ERROR_UNKNOWN (999)");
  EXPECT_EQ(hostrt::enabled_kinds().load(), 0U);
  auto another = host_tracer();
  EXPECT_NO_THROW(another.start());
}

TEST_F(trace_tracer_trouble, gets_an_error_with_advice_in_a_forked_child) {
  auto traced = host_tracer();
  traced.start();
  auto const uses = {
      std::function<void()>{[&] { traced.start(); }},
      std::function<void()>{[&] { traced.stop(); }},
      std::function<void()>{[&] { static_cast<void>(traced.take()); }},
      std::function<void()>{[&] { static_cast<void>(traced.library_name()); }},
      std::function<void()>{[] { static_cast<void>(host_tracer()); }},
  };
  for (auto const& use : uses) {
    auto const text = in_forked_child([&] { return text_of<forked_error>(use); });
    EXPECT_EQ(text.rfind("This process was forked after", 0), 0U) << text;
  }
}

TEST_F(trace_tracer_trouble, releases_nothing_in_a_forked_child) {
  auto traced = std::make_unique<tracer>(std::vector{host_library()}, all_words(), much);
  traced->start();
  auto const text = in_forked_child([&] {
    traced->close();
    traced.reset();
    return std::string{hostrt::enabled_kinds() == 0 ? "ended" : "left alone"};
  });
  EXPECT_EQ(text, "left alone");
}

}  // namespace
}  // namespace pyxfer::trace::tests
