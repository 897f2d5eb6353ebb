#include "cuda/cleanup.hpp"

#include "engine_support.hpp"

#include <stdexcept>

namespace pyxfer::tests {
namespace {

using cuda_cleanup = engine_test;

TEST_F(cuda_cleanup, keeps_notes_in_order_until_they_are_taken) {
  note_cleanup_failure("first");
  note_cleanup_failure("second");
  EXPECT_EQ(take_cleanup_failures(), (std::vector<std::string>{"first", "second"}));
  EXPECT_TRUE(take_cleanup_failures().empty());
}

TEST_F(cuda_cleanup, notes_the_error_of_a_release) {
  release_noexcept([] { throw std::runtime_error("it would not go"); });
  EXPECT_EQ(take_cleanup_failures(), std::vector<std::string>{"it would not go"});
}

TEST_F(cuda_cleanup, notes_nothing_about_a_release_that_succeeded) {
  bool done = false;
  release_noexcept([&done] { done = true; });
  EXPECT_TRUE(done);
  EXPECT_TRUE(take_cleanup_failures().empty());
}

TEST_F(cuda_cleanup, notes_where_a_call_failed) {
  release_noexcept([] { PYXFER_TRY_STATUS("cudaThat", cudaErrorInvalidValue); });
  EXPECT_EQ(take_cleanup_failures(),
            std::vector<std::string>{"cudaThat failed with cudaErrorInvalidValue (1): invalid "
                                     "argument, at csrc/tests/cuda_cleanup_test.cpp:" +
                                     std::to_string(__LINE__ - 4)});
}

/// An owner whose close succeeds or throws.
struct test_owner {
  char const* fault;
  bool tried{false};
  void close() {
    tried = true;
    if (fault != nullptr) { throw std::runtime_error(fault); }
  }
};

TEST_F(cuda_cleanup, closes_all_owners_throws_the_first_error_and_notes_the_others) {
  std::array<test_owner, 4> owners{test_owner{nullptr}, test_owner{"first"}, test_owner{"second"},
                                   test_owner{nullptr}};
  closing all;
  for (auto& one : owners) { all.close(one); }
  EXPECT_TRUE(
      std::all_of(owners.begin(), owners.end(), [](test_owner const& one) { return one.tried; }));
  EXPECT_EQ(text_of<std::runtime_error>([&all] { all.finish(); }), "first");
  EXPECT_EQ(take_cleanup_failures(), std::vector<std::string>{"second"});
}

TEST_F(cuda_cleanup, throws_nothing_if_all_owners_were_closed) {
  test_owner open{nullptr};
  closing all;
  all.close(open);
  EXPECT_NO_THROW(all.finish());
}

}  // namespace
}  // namespace pyxfer::tests
