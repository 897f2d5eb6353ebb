#include "trace/collection.hpp"

#include "trace/error.hpp"
#include "trace_support.hpp"

#include <set>
#include <utility>

namespace pyxfer::trace::tests {
namespace {

class trace_collection : public trace_test {
 protected:
  void use(cupti::functions const& call, std::vector<std::string> const& words) {
    made_ = std::make_unique<collection>(library{"some library", 28, call}, kinds_of(words),
                                         std::make_shared<gathering>(much));
  }

  void TearDown() override {
    made_.reset();
    trace_test::TearDown();
  }

  static bool has(cupti::activity_kind kind) { return hostrt::tracing(kind); }

  std::unique_ptr<collection> made_;
};

TEST_F(trace_collection, enables_exactly_the_requested_kinds) {
  use(host_functions(), {"copies", "kernels"});
  EXPECT_TRUE(has(cupti::activity_kind::copy));
  EXPECT_TRUE(has(cupti::activity_kind::peer_copy));
  EXPECT_TRUE(has(cupti::activity_kind::kernel));
  EXPECT_FALSE(has(cupti::activity_kind::set));
  EXPECT_FALSE(has(cupti::activity_kind::runtime_call));
}

TEST_F(trace_collection, disables_all_kinds) {
  use(host_functions(), all_words());
  EXPECT_NE(hostrt::enabled_kinds().load(), 0U);
  made_->close();
  EXPECT_EQ(hostrt::enabled_kinds().load(), 0U);
  EXPECT_NO_THROW(made_->close());
}

cupti::result disable_but_fail_for_copies(cupti::activity_kind kind) {
  auto const code = host_functions().disable(kind);
  return kind == cupti::activity_kind::copy ? cupti::result::unknown : code;
}

TEST_F(trace_collection, disables_the_other_kinds_if_one_fails) {
  use(host_functions({{"cuptiActivityDisable", address_of(disable_but_fail_for_copies)}}),
      all_words());
  EXPECT_EQ(text_of<refusal>([this] { made_->close(); }),
            "cuptiActivityDisable failed with CUPTI_ERROR_UNKNOWN (" +
                std::to_string(static_cast<int>(cupti::result::unknown)) + ")");
  EXPECT_EQ(hostrt::enabled_kinds().load(), 0U);
}

TEST_F(trace_collection, leaves_out_kinds_that_the_library_refuses) {
  hostrt::refuse_kind(49, 21);
  use(host_functions(), {"copies", "allocations"});
  EXPECT_EQ(made_->refused(),
            (std::map<std::string, std::string>{{"allocations",
                                                 "cuptiActivityEnable failed with "
                                                 "CUPTI_ERROR_INVALID_KIND (21)"}}));
  EXPECT_TRUE(has(cupti::activity_kind::copy));
}

TEST_F(trace_collection, works_without_peer_copies) {
  hostrt::refuse_kind(22, 21);
  use(host_functions(), {"copies"});
  EXPECT_EQ(made_->refused().count("peer copies"), 1U);
  EXPECT_TRUE(has(cupti::activity_kind::copy));
}

TEST_F(trace_collection, fails_if_copies_are_refused) {
  hostrt::refuse_kind(1, 15);
  EXPECT_THROW(use(host_functions(), all_words()), refusal);
  EXPECT_EQ(hostrt::enabled_kinds().load(), 0U);
}

TEST_F(trace_collection, fails_if_all_kinds_are_refused) {
  hostrt::refuse_kind(12, 7);
  EXPECT_THROW(use(host_functions(), {"marks"}), refusal);
}

std::set<std::pair<cupti::domain, std::uint32_t>>& switched_off() {
  static auto& calls = *new std::set<std::pair<cupti::domain, std::uint32_t>>;
  return calls;
}

template <cupti::domain Of>
cupti::result note_switch(std::uint32_t callback, std::uint8_t on) {
  if (on == 0) { switched_off().emplace(Of, callback); }
  return cupti::result::success;
}

TEST_F(trace_collection, disables_exactly_the_unwanted_calls) {
  switched_off().clear();
  use(host_functions(
          {{"cuptiActivityEnableRuntimeApi", address_of(note_switch<cupti::domain::runtime>)},
           {"cuptiActivityEnableDriverApi", address_of(note_switch<cupti::domain::driver>)}}),
      {"calls"});
  EXPECT_TRUE(has(cupti::activity_kind::runtime_call));
  EXPECT_TRUE(has(cupti::activity_kind::driver_call));
  std::set<std::pair<cupti::domain, std::uint32_t>> expected;
  for (auto const of : {cupti::domain::runtime, cupti::domain::driver}) {
    for (auto const id : call_names{host_functions(), of}.unwanted_ids()) {
      expected.emplace(of, id);
    }
  }
  EXPECT_EQ(switched_off(), expected);
  EXPECT_FALSE(expected.empty());
}

TEST_F(trace_collection, records_all_calls_if_an_older_library_cannot_disable_one) {
  use(host_functions(
          {{"cuptiActivityEnableRuntimeApi", nullptr}, {"cuptiActivityEnableDriverApi", nullptr}}),
      {"calls"});
  EXPECT_TRUE(has(cupti::activity_kind::runtime_call));
}

TEST_F(trace_collection, records_all_calls_if_the_library_refuses_to_disable_one) {
  auto* const refuse = +[](std::uint32_t, std::uint8_t) { return cupti::result::unknown; };
  use(host_functions({{"cuptiActivityEnableRuntimeApi", address_of(refuse)},
                      {"cuptiActivityEnableDriverApi", address_of(refuse)}}),
      {"calls"});
  EXPECT_TRUE(has(cupti::activity_kind::runtime_call));
  EXPECT_TRUE(made_->refused().empty());
}

}  // namespace
}  // namespace pyxfer::trace::tests
