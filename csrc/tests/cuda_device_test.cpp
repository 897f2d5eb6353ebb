#include "cuda/device.hpp"

#include "copy/gate.hpp"
#include "cuda/stream.hpp"
#include "engine_support.hpp"

#include <future>
#include <thread>

namespace pyxfer::tests {
namespace {

using cuda_device = engine_test;

CUcontext current_context() {
  CUcontext found = nullptr;
  EXPECT_EQ(driver().cuCtxGetCurrent(&found), CUDA_SUCCESS);
  return found;
}

/// Replaces every lower-case hexadecimal digit by an x.
std::string shape_of(std::string text) {
  auto const is_digit = [](char character) {
    return (character >= '0' && character <= '9') || (character >= 'a' && character <= 'f');
  };
  std::replace_if(text.begin(), text.end(), is_digit, 'x');
  return text;
}

TEST_F(cuda_device, is_counted) {
  EXPECT_EQ(device_count(), 1);
  hostrt::set_device_count(3);
  EXPECT_EQ(device_count(), 3);
}

TEST_F(cuda_device, is_unavailable_if_there_is_none) {
  hostrt::set_device_count(0);
  EXPECT_THROW(static_cast<void>(device_count()), unavailable_error);
}

TEST_F(cuda_device, has_the_version_of_its_driver) { EXPECT_EQ(driver_version(), CUDART_VERSION); }

TEST_F(cuda_device, is_described) {
  hostrt::set_device_count(2);
  auto const found = properties_of(1);
  EXPECT_EQ(found.name, "host memory, not a PCIe link");
  EXPECT_EQ(shape_of(found.uuid), "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx");
  EXPECT_NE(found.uuid, properties_of(0).uuid);
  EXPECT_GT(found.memory_bytes, 0U);
  EXPECT_EQ(found.copy_engines, 2);
  EXPECT_FALSE(found.integrated);
}

TEST_F(cuda_device, off_the_pci_bus_has_no_address_and_leaves_no_error) {
  EXPECT_EQ(properties_of(0).pci, "");
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST_F(cuda_device, reports_its_memory) {
  auto const [free, total] = memory_info(0);
  EXPECT_GT(free, 0U);
  EXPECT_LE(free, total);
}

TEST_F(cuda_device, synchronization_includes_other_libraries_streams) {
  stream const theirs{0};
  gate held{theirs.view(), 60};
  auto waiting = std::async(std::launch::async, [] { synchronize_device(0); });
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds{30}), std::future_status::timeout);
  held.open();
  EXPECT_NO_THROW(waiting.get());
}

using cuda_device_guard = engine_test;

TEST_F(cuda_device_guard, makes_its_device_current) {
  hostrt::set_device_count(2);
  device_guard const guard{1};
  int current = -1;
  EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 1);
  EXPECT_NE(current_context(), nullptr);
}

TEST_F(cuda_device_guard, restores_having_no_context) {
  ASSERT_EQ(current_context(), nullptr);
  { device_guard const guard{0}; }
  EXPECT_EQ(current_context(), nullptr);
}

TEST_F(cuda_device_guard, restores_the_context_of_another_device) {
  hostrt::set_device_count(3);
  ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
  auto* const before = current_context();
  {
    device_guard const outer{0};
    device_guard const inner{1};
  }
  EXPECT_EQ(current_context(), before);
  int current = -1;
  EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 2);
}

TEST_F(cuda_device_guard, of_an_unknown_device_changes_nothing) {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  auto* const before = current_context();
  EXPECT_EQ(text_of<cuda_error>([] { device_guard const guard{5}; }),
            "cudaSetDevice failed with cudaErrorInvalidDevice (101): invalid device ordinal");
  EXPECT_EQ(current_context(), before);
}

TEST_F(cuda_device_guard, of_a_context_makes_it_current_and_restores_the_previous_one) {
  hostrt::set_device_count(2);
  auto* const wanted = primary_context(1);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  auto* const before = current_context();
  ASSERT_NE(before, wanted);
  {
    context_guard const guard{wanted};
    EXPECT_EQ(current_context(), wanted);
  }
  EXPECT_EQ(current_context(), before);
}

TEST_F(cuda_device_guard, of_the_context_that_is_current_changes_nothing) {
  auto* const wanted = primary_context(0);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  hostrt::reset();
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  { context_guard const guard{wanted}; }
  EXPECT_EQ(count_of("cuCtxSetCurrent"), 0);
}

TEST_F(cuda_device_guard, does_not_change_the_callers_context_for_a_primary_context) {
  ASSERT_EQ(current_context(), nullptr);
  EXPECT_NE(primary_context(0), nullptr);
  EXPECT_EQ(current_context(), nullptr);
}

TEST_F(cuda_device_guard, notes_that_it_could_not_restore_the_context) {
  hostrt::fail("cuCtxSetCurrent", 1, CUDA_ERROR_INVALID_CONTEXT);
  { device_guard const guard{0}; }
  auto const notes = take_cleanup_failures();
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes.front().rfind("cuCtxSetCurrent failed with CUDA_ERROR_INVALID_CONTEXT", 0), 0U)
      << notes.front();
}

class cuda_peer : public engine_test {
 protected:
  void SetUp() override {
    engine_test::SetUp();
    hostrt::set_device_count(2);
  }
};

TEST_F(cuda_peer, access_is_allowed_and_ended_twice) {
  EXPECT_TRUE(can_access_peer(0, 1));
  EXPECT_FALSE(can_access_peer(1, 1));
  for (int i = 0; i < 2; ++i) { enable_peer(0, 1); }
  for (int i = 0; i < 2; ++i) { disable_peer(0, 1); }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(cuda_peer, access_may_be_impossible) {
  hostrt::refuse_peer(1, 0, true);
  EXPECT_TRUE(can_access_peer(0, 1));
  EXPECT_FALSE(can_access_peer(1, 0));
  EXPECT_EQ(text_of<cuda_error>([] { enable_peer(1, 0); }).rfind("cudaDeviceEnablePeerAccess", 0),
            0U);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace pyxfer::tests
