#include "links/kernel_text.hpp"

#include <gtest/gtest.h>

#include <string>

namespace pyxfer::tests {
namespace {

TEST(links_kernel_text, is_for_every_device_and_driver) {
  std::string const text{kernel_text};
  EXPECT_EQ(text.rfind(".version 6.0\n.target sm_50\n", 0), 0U);
  for (auto const* const entry : {"copy16", "chase", "gate"}) {
    EXPECT_NE(text.find(std::string{".visible .entry "} + entry + "("), std::string::npos);
  }
}

}  // namespace
}  // namespace pyxfer::tests
