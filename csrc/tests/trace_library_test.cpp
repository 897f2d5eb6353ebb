#include "trace/library.hpp"

#include "trace/error.hpp"
#include "trace_support.hpp"

namespace pyxfer::trace::tests {
namespace {

template <std::uint32_t Version>
cupti::result answer_version(std::uint32_t* version) {
  *version = Version;
  return cupti::result::success;
}

template <std::uint32_t Version>
candidate of_version(std::string const& name = "some library") {
  return host_library({{"cuptiGetVersion", address_of(answer_version<Version>)}}, name);
}

std::string refusal_of(std::vector<candidate> const& candidates) {
  return text_of<trace_unavailable_error>([&] { library_choice const chosen{candidates}; });
}

TEST(trace_library, has_a_name_and_a_version) {
  auto const opened = open(host_library());
  EXPECT_EQ(opened.name, "the host runtime");
  EXPECT_EQ(opened.version, 28U);
}

TEST(trace_library, that_is_missing_is_refused_with_the_linkers_error) {
  EXPECT_EQ(refusal_of({shared_library("/nowhere/libcupti.so.12")}),
            "no CUPTI library can be used here: /nowhere/libcupti.so.12: cannot open shared object "
            "file: No such file or directory");
}

TEST(trace_library, that_is_not_cupti_is_refused) {
  EXPECT_EQ(refusal_of({shared_library("libm.so.6")}),
            "no CUPTI library can be used here: libm.so.6: it has no cuptiGetVersion, so it is not "
            "CUPTI");
}

TEST(trace_library, of_every_known_version_is_accepted) {
  EXPECT_EQ(open(of_version<18>()).version, 18U);
  EXPECT_EQ(open(of_version<130500>()).version, 130500U);
}

TEST(trace_library, of_an_unknown_version_is_refused) {
  auto const known = std::string{" is not supported by this pyxfer: the CUPTI of CUDA 12 or 13 is"};
  EXPECT_EQ(text_of<std::runtime_error>([] { static_cast<void>(open(of_version<17>())); }),
            "its version 17" + known);
  EXPECT_EQ(text_of<std::runtime_error>([] { static_cast<void>(open(of_version<140000>())); }),
            "its version 140000" + known);
}

TEST(trace_library, may_lack_newer_functions) {
  auto const old = open(host_library(
      {{"cuptiActivityEnableRuntimeApi", nullptr}, {"cuptiActivityEnableDriverApi", nullptr}}));
  EXPECT_EQ(old.call.enable_runtime_api, nullptr);
  EXPECT_NE(old.call.enable, nullptr);
}

TEST(trace_library, is_the_first_of_several_that_can_be_opened) {
  library_choice const chosen{
      {shared_library("/nowhere/libcupti.so"), of_version<18>("old"), of_version<28>("new")}};
  EXPECT_EQ(chosen.used().name, "old");
}

TEST(trace_library, is_the_next_one_after_a_refusal) {
  library_choice chosen{{of_version<18>("old"), of_version<17>("older"), of_version<28>("new")}};
  chosen.refuse("too new for the driver");
  EXPECT_EQ(chosen.used().name, "new");
}

TEST(trace_library, is_named_with_all_others_if_all_are_refused) {
  library_choice chosen{{of_version<17>("older"), of_version<18>("old"), of_version<28>("new")}};
  chosen.refuse("no");
  auto const text = text_of<trace_unavailable_error>([&] { chosen.refuse("neither"); });
  EXPECT_EQ(
      text,
      "no CUPTI library can be used here: older: its version 17 is not supported by this pyxfer: "
      "the CUPTI of CUDA 12 or 13 is; old: no; new: neither");
}

TEST(trace_library, is_searched_again_after_all_were_refused) {
  library_choice chosen{{of_version<18>("old"), of_version<28>("new")}};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(chosen.used().name, "old");
    chosen.refuse("no");
    EXPECT_EQ(text_of<trace_unavailable_error>([&] { chosen.refuse("neither"); }),
              "no CUPTI library can be used here: old: no; new: neither");
  }
}

TEST(trace_library, is_unavailable_if_none_was_named) {
  EXPECT_EQ(refusal_of({}), "no CUPTI library can be used here: none was named");
}

std::string advice(cupti::result code) {
  return advice_for(refusal{host_functions(), "cuptiSubscribe", code});
}

TEST(trace_library, refusals_have_advice) {
  EXPECT_EQ(
      advice(cupti::result::multiple_subscribers),
      "another profiler is active in this process (cuptiSubscribe failed with "
      "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)): this driver allows only one at a "
      "time; end it first");
  EXPECT_NE(advice(cupti::result::insufficient_privileges).find("CAP_SYS_ADMIN"),
            std::string::npos);
  EXPECT_NE(advice(cupti::result::not_initialized).find("older than this library"),
            std::string::npos);
  EXPECT_EQ(advice(static_cast<cupti::result>(77)),
            "cuptiSubscribe failed with an unknown error (77)");
}

}  // namespace
}  // namespace pyxfer::trace::tests
