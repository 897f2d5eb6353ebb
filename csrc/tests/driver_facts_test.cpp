#include "driver_facts.hpp"

#include "hostrt_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

TEST_F(hostrt, it_answers_as_the_driver_does) {
  set_device_count(2);
  int asked = 0;
  facts::ask_driver([] { destroy_context(0); },
                    [&](facts::fact const& each) {
                      ++asked;
                      EXPECT_EQ(each.found, each.relied_on) << each.name;
                    });
  EXPECT_GT(asked, 0);
  reset();
  for (auto const& left : made()) {  // of the context that was destroyed
    if (left.kind == "stream")
      (void)cudaStreamDestroy(reinterpret_cast<cudaStream_t>(left.address));
    if (left.kind == "event")
      (void)driver("cuEventDestroy", reinterpret_cast<CUevent>(left.address));
  }
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
