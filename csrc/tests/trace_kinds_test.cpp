#include "trace/parse.hpp"

#include "trace_support.hpp"

namespace pyxfer::trace::tests {
namespace {

TEST(trace_kinds, have_words) {
  EXPECT_EQ(kinds_of({"copies"}), std::set{record_kind::copy});
  EXPECT_EQ(kinds_of({"overhead", "calls"}), (std::set{record_kind::call, record_kind::overhead}));
  for (auto const* const word : kind_words) {
    EXPECT_STREQ(word_of(*kinds_of({word}).begin()), word);
  }
}

TEST(trace_kinds, that_are_unknown_are_refused_with_a_list_of_the_known) {
  EXPECT_EQ(text_of<std::invalid_argument>([] { static_cast<void>(kinds_of({"copys"})); }),
            "unknown kind \"copys\"; known are copies, sets, kernels, calls, allocations, marks, "
            "overhead");
}

TEST(trace_kinds, must_not_be_empty) {
  EXPECT_EQ(text_of<std::invalid_argument>([] { static_cast<void>(kinds_of({})); }),
            "nothing to trace: name at least one kind");
}

}  // namespace
}  // namespace pyxfer::trace::tests
