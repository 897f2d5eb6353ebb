#include "cuda/driver.hpp"

#include "engine_support.hpp"

#include <iostream>

namespace pyxfer::tests {
namespace {

using cuda_driver = engine_test;

TEST_F(cuda_driver, is_found_once) {
  static_cast<void>(driver());
  hostrt::reset();
  EXPECT_EQ(&driver(), &driver());
  EXPECT_EQ(count_of("cudaGetDriverEntryPointByVersion"), 0);
}

TEST_F(cuda_driver, has_known_functions_and_not_unknown_ones) {
  EXPECT_TRUE(driver_has("cuEventRecord", 12000));
  EXPECT_FALSE(driver_has("cuNothingOfTheKind", 12000));
}

TEST_F(cuda_driver, of_an_older_version_lacks_a_function) {
  hostrt::set_missing("cuEventRecord", true);
  EXPECT_FALSE(driver_has("cuEventRecord", 12000));
}

TEST_F(cuda_driver, has_no_functions_and_leaves_no_error_if_it_is_missing) {
  hostrt::set_no_driver(cudaErrorInsufficientDriver);
  EXPECT_FALSE(driver_has("cuEventRecord", 12000));
  hostrt::set_no_driver(0);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(cuda_driver, explains_its_errors) {
  char const* name = nullptr;
  char const* text = nullptr;
  driver_error_text(CUDA_ERROR_OUT_OF_MEMORY, &name, &text);
  EXPECT_STREQ(name, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_STREQ(text, "out of memory");
}

TEST_F(cuda_driver, has_a_text_for_an_unknown_error) {
  char const* name = nullptr;
  char const* text = nullptr;
  driver_error_text(static_cast<CUresult>(998), &name, &text);
  EXPECT_STREQ(name, "CUDA_ERROR");
  EXPECT_STREQ(text, "unknown driver error");
}

/// The table is found once in a process, so a test of what comes before needs its own process.
class cuda_driver_at_first : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

[[noreturn]] void look_without_a_driver_and_then_with_one() {
  hostrt::set_no_driver(cudaErrorInsufficientDriver);
  std::cerr << text_of<unavailable_error>([] { static_cast<void>(driver()); });
  hostrt::set_no_driver(0);
  std::cerr << "; then " << (driver().cuEventCreate != nullptr ? "found" : "null");
  std::_Exit(0);
}

TEST_F(cuda_driver_at_first, is_searched_again_after_a_failure) {
  EXPECT_EXIT(look_without_a_driver_and_then_with_one(), ::testing::ExitedWithCode(0),
              "cudaGetDriverEntryPointByVersion failed with cudaErrorInsufficientDriver .35.: "
              ".*; then found");
}

[[noreturn]] void look_for_what_is_missing() {
  hostrt::set_missing("cuStreamWaitEvent", true);
  std::cerr << text_of<unavailable_error>([] { static_cast<void>(driver()); });
  std::_Exit(0);
}

TEST_F(cuda_driver_at_first, names_a_missing_function) {
  EXPECT_EXIT(look_for_what_is_missing(), ::testing::ExitedWithCode(0),
              "the driver has no cuStreamWaitEvent");
}

[[noreturn]] void explain_without_a_driver() {
  hostrt::set_no_driver(cudaErrorNoDevice);
  char const* name = nullptr;
  char const* text = nullptr;
  driver_error_text(CUDA_ERROR_OUT_OF_MEMORY, &name, &text);
  std::cerr << name << ": " << text;
  std::_Exit(0);
}

TEST_F(cuda_driver_at_first, has_error_texts_without_a_driver) {
  EXPECT_EXIT(explain_without_a_driver(), ::testing::ExitedWithCode(0),
              "CUDA_ERROR: the driver gave no text for this code");
}

}  // namespace
}  // namespace pyxfer::tests
