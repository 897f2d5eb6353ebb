#include "ring/ticket.hpp"

#include "cuda/process.hpp"
#include "engine_support.hpp"
#include "fork_support.hpp"

#include <limits>
#include <stdexcept>
#include <thread>

namespace pyxfer::tests {
namespace {

class ring_ticket : public engine_test {
 protected:
  std::promise<staged> transfer_;
  ticket made_{transfer_.get_future().share()};
};

TEST_F(ring_ticket, is_done_when_its_transfer_is) {
  EXPECT_FALSE(made_.done());
  transfer_.set_value({0, 5, 5, 0, 0, 0});
  EXPECT_TRUE(made_.done());
  EXPECT_EQ(made_.result(0).chunks, 5U);
  EXPECT_EQ(made_.result(0).chunks, 5U);
}

TEST_F(ring_ticket, waits_for_its_transfer) {
  for (auto const limit : {60.0, 1e300, std::numeric_limits<double>::infinity()}) {
    std::promise<staged> transfer;
    ticket const waiting{transfer.get_future().share()};
    std::thread ending{[&] { transfer.set_value({0, 5, 5, 0, 0, 0}); }};
    EXPECT_EQ(waiting.result(limit).chunks, 5U);
    ending.join();
  }
}

TEST_F(ring_ticket, that_takes_too_long_says_so) {
  EXPECT_EQ(text_of<timeout_error>([this] { static_cast<void>(made_.result(0.02)); }),
            "The upload has not ended within 0.02 s. It goes on: ask again, or cancel the ring's "
            "transfers.");
  for (auto const limit : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(static_cast<void>(made_.result(limit)), timeout_error);
  }
}

TEST_F(ring_ticket, throws_what_its_transfer_threw) {
  transfer_.set_exception(std::make_exception_ptr(std::runtime_error("no")));
  EXPECT_TRUE(made_.done());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(text_of<std::runtime_error>([this] { static_cast<void>(made_.result(0)); }), "no");
  }
}

TEST_F(ring_ticket, is_worth_nothing_in_a_forked_child) {
  note_process();
  auto const told = in_forked_child([this] {
    return text_of<forked_error>([this] { static_cast<void>(made_.done()); }) +
           text_of<forked_error>([this] { static_cast<void>(made_.result(60)); });
  });
  EXPECT_EQ(told.find("This process was forked after"), 0U) << told;
  EXPECT_NE(told.rfind("This process was forked after"), 0U) << told;
}

}  // namespace
}  // namespace pyxfer::tests
