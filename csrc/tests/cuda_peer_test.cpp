#include "cuda/peer.hpp"

#include "engine_support.hpp"

namespace pyxfer::tests {
namespace {

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

TEST_F(cuda_peer, reports_every_failure) {
  expect_every_failure_reported([] {
    hostrt::set_device_count(2);
    static_cast<void>(can_access_peer(0, 1));
    enable_peer(0, 1);
    disable_peer(0, 1);
  });
}

}  // namespace
}  // namespace pyxfer::tests
