#include "cuda/wait.hpp"

#include "copy/gate.hpp"
#include "engine_support.hpp"

#include <thread>

namespace pyxfer::tests {
namespace {

using std::chrono::milliseconds;

/// An event behind a gate, which the test opens.
class cuda_wait : public engine_test {
 protected:
  void SetUp() override {
    engine_test::SetUp();
    own_.emplace(0);
    awaited_.emplace(0);
    held_.emplace(own_->view(), 60);
    awaited_->record(own_->view());
  }

  void TearDown() override {
    held_.reset();
    awaited_.reset();
    own_.reset();
    engine_test::TearDown();
  }

  [[nodiscard]] event const& awaited() const { return *awaited_; }

  void let_pass() {
    held_->open();
    EXPECT_EQ(cudaStreamSynchronize(own_->handle()), cudaSuccess);
  }

  /// Opens the gate from another thread, a moment later.
  [[nodiscard]] std::thread pass_later() {
    return std::thread{[this] {
      std::this_thread::sleep_for(milliseconds{40});
      held_->open();
    }};
  }

 private:
  std::optional<stream> own_;
  std::optional<event> awaited_;
  std::optional<gate> held_;
};

TEST_F(cuda_wait, ends_when_the_event_passes) {
  auto opening = pass_later();
  EXPECT_TRUE(wait_for(awaited(), 60));
  opening.join();
  EXPECT_TRUE(awaited().passed());
}

TEST_F(cuda_wait, gives_up_after_its_time_limit_and_not_before) {
  auto const begun = now_s();
  EXPECT_FALSE(wait_for(awaited(), 0.05));
  EXPECT_GE(now_s() - begun, 0.05);
}

TEST_F(cuda_wait, checks_once_with_a_time_limit_of_zero) {
  EXPECT_FALSE(wait_for(awaited(), 0));
  let_pass();
  EXPECT_TRUE(wait_for(awaited(), 0));
}

TEST_F(cuda_wait, looks_once_more_after_its_time_limit) {
  auto const before = count_of("cuEventQuery");
  hostrt::stall("cuEventQuery", 2, 1e5);
  std::atomic<bool> over{false};
  std::thread passing{[&] {
    while (count_of("cuEventQuery") < before + 2 && !over) { std::this_thread::yield(); }
    let_pass();
    hostrt::release_stalls();
  }};
  EXPECT_TRUE(wait_for(awaited(), 0));
  over = true;
  passing.join();
}

TEST_F(cuda_wait, ends_early_when_cancelled) {
  std::atomic<bool> cancelled{false};
  std::thread cancelling{[&cancelled] {
    std::this_thread::sleep_for(milliseconds{30});
    cancelled = true;
  }};
  EXPECT_FALSE(wait_for(awaited(), 60, &cancelled));
  cancelling.join();
}

TEST_F(cuda_wait, returns_true_for_a_passed_event_even_if_cancelled) {
  std::atomic<bool> const cancelled{true};
  let_pass();
  EXPECT_TRUE(wait_for(awaited(), 60, &cancelled));
}

TEST_F(cuda_wait, that_times_out_says_for_what_how_long_and_what_to_check) {
  auto const text = text_of<timeout_error>([this] { wait(awaited(), patience{0.05}, "a copy"); });
  EXPECT_EQ(
      text,
      "The device did not finish a copy within 0.05 s. Another program may hold it, or it has "
      "hung: look at nvidia-smi and for Xid in dmesg.");
}

TEST_F(cuda_wait, that_is_cancelled_names_the_operation) {
  auto const flag = std::make_shared<std::atomic<bool>>(true);
  auto const text =
      text_of<cancelled_error>([&] { wait(awaited(), patience{60, flag}, "a copy"); });
  EXPECT_EQ(text, "cancelled during a copy");
}

TEST_F(cuda_wait, ends_when_the_device_is_lost) {
  std::thread losing{[] {
    std::this_thread::sleep_for(milliseconds{30});
    hostrt::lose_device(cudaErrorIllegalAddress);
  }};
  EXPECT_THROW(static_cast<void>(wait_for(awaited(), 60)), device_lost_error);
  losing.join();
  hostrt::reset();
}

TEST(patience, shares_its_flag_with_its_copies) {
  auto const flag = std::make_shared<std::atomic<bool>>(false);
  patience const first{2, flag};
  std::vector<patience> const copies{first, first};
  auto const& copied = copies.back();
  EXPECT_FALSE(first.cancelled() || copied.cancelled());
  *flag = true;
  EXPECT_TRUE(first.cancelled() && copied.cancelled());
  EXPECT_EQ(copied.seconds(), 2);
}

TEST(host_clock, is_read_in_seconds) {
  auto const from = host_clock::time_point{};
  EXPECT_DOUBLE_EQ(seconds_between(from, from + milliseconds{1500}), 1.5);
}

}  // namespace
}  // namespace pyxfer::tests
