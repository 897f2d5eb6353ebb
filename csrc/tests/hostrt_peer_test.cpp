#include "hostrt_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

using hostrt_peer = hostrt;

TEST_F(hostrt_peer, invalid_calls_are_refused) {
  set_device_count(2);
  int can = 0;
  EXPECT_EQ(cudaDeviceCanAccessPeer(nullptr, 0, 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceCanAccessPeer(&can, 0, 2), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(2, 0), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceDisablePeerAccess(2), cudaErrorInvalidDevice);
  EXPECT_THROW(refuse_peer(0, 16, true), std::invalid_argument);
}

TEST_F(hostrt_peer, a_reset_ends_access_and_refusals) {
  set_device_count(2);
  refuse_peer(0, 1, true);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessUnsupported);
  reset();
  set_device_count(2);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
