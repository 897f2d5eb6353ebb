#include "cuda/error.hpp"

#include "engine_support.hpp"

#include <fstream>
#include <regex>
#include <sstream>
#include <typeinfo>

namespace pyxfer::tests {
namespace {

using cuda_error_type = engine_test;

/// The type that failed calls of the runtime (cudaError_t) or the driver (CUresult) throw.
template <typename Status = cudaError_t>
std::type_info const& type_thrown(int code) {
  try {
    PYXFER_TRY(static_cast<Status>(code));
  } catch (std::exception const& error) { return typeid(error); }
  return typeid(void);
}

TEST_F(cuda_error_type, without_a_usable_gpu_is_unavailable) {
  for (auto const code : {cudaErrorInsufficientDriver, cudaErrorNoDevice, cudaErrorStubLibrary}) {
    EXPECT_EQ(type_thrown(code), typeid(unavailable_error)) << code;
    EXPECT_EQ(type_thrown<CUresult>(code), typeid(unavailable_error)) << code;
  }
}

TEST_F(cuda_error_type, out_of_memory_is_a_memory_error) {
  EXPECT_EQ(type_thrown(cudaErrorMemoryAllocation), typeid(memory_error));
  EXPECT_EQ(type_thrown<CUresult>(CUDA_ERROR_OUT_OF_MEMORY), typeid(memory_error));
}

/// The codes after which the process must be terminated, according to driver_types.h.
std::set<int> final_codes_of_the_header() {
  std::ifstream file{PYXFER_DRIVER_TYPES};
  std::stringstream read;
  read << file.rdbuf();
  auto const text = std::regex_replace(read.str(), std::regex{"[ \\n*]+"}, " ");
  std::regex const value{"^/ cudaError[A-Za-z]+ = ([0-9]+)"};
  std::set<int> codes;
  for (auto at = text.find("must be terminated"); at != std::string::npos;
       at = text.find("must be terminated", at + 1)) {
    auto const after_comment = text.substr(text.find('/', at), 100);
    std::smatch found;
    if (std::regex_search(after_comment, found, value)) { codes.insert(std::stoi(found[1])); }
  }
  return codes;
}

TEST_F(cuda_error_type, is_a_lost_device_if_the_header_says_that_the_process_must_end) {
  auto expected = final_codes_of_the_header();
  ASSERT_GE(expected.size(), 13U);
  expected.insert({cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorUnknown,
                   cudaErrorContextIsDestroyed});
  std::set<int> found;
  std::set<int> found_in_driver;
  for (int code = 1; code < cudaErrorApiFailureBase; ++code) {
    auto const& lost = typeid(device_lost_error);
    if (type_thrown(code) == lost) { found.insert(code); }
    if (type_thrown<CUresult>(code) == lost) { found_in_driver.insert(code); }
  }
  EXPECT_EQ(found, expected);
  EXPECT_EQ(found_in_driver, expected);
}

TEST_F(cuda_error_type, of_any_other_code_is_the_plain_one) {
  for (auto const code : {cudaErrorInvalidValue, cudaErrorNotSupported, cudaErrorInvalidDevice,
                          cudaErrorHostMemoryAlreadyRegistered, cudaErrorDevicesUnavailable}) {
    EXPECT_EQ(type_thrown(code), typeid(cuda_error)) << code;
    EXPECT_EQ(type_thrown<CUresult>(code), typeid(cuda_error)) << code;
  }
}

using cuda_error_text = engine_test;

TEST_F(cuda_error_text, names_the_runtime_call_its_code_and_the_line) {
  hostrt::fail("cudaMalloc", 1, cudaErrorMemoryAllocation);
  void* made = nullptr;
  try {
    PYXFER_TRY(cudaMalloc(&made, 10));
    FAIL() << "nothing was thrown";
  } catch (cuda_error const& error) {
    EXPECT_STREQ(error.what(),
                 "cudaMalloc failed with cudaErrorMemoryAllocation (2): out of memory");
    EXPECT_EQ(error.code(), 2);
    EXPECT_EQ(error.name(), "cudaErrorMemoryAllocation");
    EXPECT_EQ(error.call(), "cudaMalloc");
    EXPECT_EQ(error.description(), "out of memory");
    EXPECT_EQ(error.where(), "csrc/tests/cuda_error_test.cpp:" + std::to_string(__LINE__ - 9));
  }
}

TEST_F(cuda_error_text, names_the_driver_call_without_the_table) {
  hostrt::fail("cuEventDestroy", 1, CUDA_ERROR_INVALID_VALUE);
  try {
    PYXFER_TRY(driver().cuEventDestroy(nullptr));
    FAIL() << "nothing was thrown";
  } catch (cuda_error const& error) {
    EXPECT_EQ(error.call(), "cuEventDestroy");
    EXPECT_EQ(error.name(), "CUDA_ERROR_INVALID_VALUE");
    EXPECT_EQ(error.description(), "invalid argument");
  }
}

TEST_F(cuda_error_text, of_a_given_status_has_the_given_name) {
  EXPECT_EQ(text_of<cuda_error>([] { PYXFER_TRY_STATUS("cudaThat", cudaErrorInvalidValue); }),
            "cudaThat failed with cudaErrorInvalidValue (1): invalid argument");
}

TEST_F(cuda_error_text, of_an_unknown_code_is_a_sentence) {
  EXPECT_EQ(text_of<cuda_error>([] { PYXFER_TRY_STATUS("cuThat", static_cast<CUresult>(998)); }),
            "cuThat failed with CUDA_ERROR (998): unknown driver error");
}

using cuda_error_check = engine_test;

TEST_F(cuda_error_check, of_a_success_throws_nothing_and_calls_once) {
  int count = 0;
  PYXFER_TRY(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 1);
  EXPECT_EQ(count_of("cudaGetDeviceCount"), 1);
}

TEST_F(cuda_error_check, leaves_no_error_behind_for_the_next_call) {
  hostrt::fail("cudaStreamQuery", 1, cudaErrorInvalidValue);
  EXPECT_THROW(PYXFER_TRY(cudaStreamQuery(nullptr)), cuda_error);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(cuda_error_check, cannot_clear_a_lost_device) {
  hostrt::fail_sticky("cudaStreamQuery", 1, cudaErrorIllegalAddress);
  EXPECT_THROW(PYXFER_TRY(cudaStreamQuery(nullptr)), device_lost_error);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorIllegalAddress);
}

using cuda_error_hint = engine_test;

TEST_F(cuda_error_hint, for_an_old_driver_names_its_version_and_the_required_one) {
  auto const speaks =
      std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
  EXPECT_EQ(hint_for(cudaErrorInsufficientDriver),
            "The NVIDIA driver here speaks CUDA " + speaks +
                " and pyxfer needs 12.0: install driver 525 or later.");
}

TEST_F(cuda_error_hint, without_a_driver_says_that_there_is_none) {
  hostrt::set_no_driver(cudaErrorInsufficientDriver);
  EXPECT_EQ(hint_for(cudaErrorInsufficientDriver).rfind("No NVIDIA driver answers here", 0), 0U);
}

TEST_F(cuda_error_hint, exists_for_codes_that_a_user_can_act_on) {
  for (int const code :
       {cudaErrorNoDevice, cudaErrorStubLibrary, cudaErrorMemoryAllocation,
        cudaErrorInitializationError, cudaErrorCallRequiresNewerDriver, cudaErrorSystemNotReady,
        cudaErrorSystemDriverMismatch, cudaErrorDevicesUnavailable,
        cudaErrorHostMemoryAlreadyRegistered, cudaErrorECCUncorrectable, cudaErrorIllegalAddress}) {
    EXPECT_EQ(hint_for(code).back(), '.') << code;
  }
}

TEST_F(cuda_error_hint, of_a_lost_device_says_that_a_new_process_is_needed) {
  for (int code = 1; code < cudaErrorApiFailureBase; ++code) {
    if (type_thrown<CUresult>(code) != typeid(device_lost_error)) { continue; }
    EXPECT_NE(hint_for(code).find("only a new process can use it again."), std::string::npos)
        << code;
  }
}

TEST_F(cuda_error_hint, is_empty_for_codes_without_general_advice) {
  EXPECT_EQ(hint_for(cudaErrorInvalidValue), "");
}

}  // namespace
}  // namespace pyxfer::tests
