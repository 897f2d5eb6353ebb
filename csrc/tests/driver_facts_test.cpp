#include "driver_facts.hpp"

#include "hostrt_support.hpp"

namespace pyxfer::hostrt::testing {
namespace {

TEST_F(hostrt, gives_the_facts_of_the_driver) {
  set_device_count(10);
  int asked = 0;
  facts::check_driver([] { destroy_context(0); },
                      [&](facts::fact const& reported) {
                        ++asked;
                        EXPECT_EQ(reported.found, reported.relied_on) << reported.name;
                      });
  EXPECT_GT(asked, 0);
  reset();
  for (auto const& left : made()) {  // objects of the context that was destroyed
    if (left.kind == "stream")
      (void)cudaStreamDestroy(reinterpret_cast<cudaStream_t>(left.address));
    if (left.kind == "event")
      (void)driver("cuEventDestroy", reinterpret_cast<CUevent>(left.address));
  }
}

}  // namespace
}  // namespace pyxfer::hostrt::testing
