#include "fork_support.hpp"
#include "trace/error.hpp"
#include "trace/tracer.hpp"
#include "trace_support.hpp"

namespace pyxfer::trace::tests {
namespace {

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
