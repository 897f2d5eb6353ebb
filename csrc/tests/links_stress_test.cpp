#include "cuda/error.hpp"
#include "links_support.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <iostream>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>

namespace pyxfer::tests {
namespace {

struct outcomes {
  long right{0};
  long wrong{0};
  long failed{0};
  long lost{0};
  long late{0};
  long cancelled{0};
  long refused{0};
};

/// A run of random flows on random devices, and the trouble that befalls it.
class trial {
 public:
  explicit trial(std::mt19937& random) : random_{random}, devices_{1 + below(4)} {
    hostrt::set_device_count(devices_);
    for (int i = 1 + below(4); i != 0; --i) { add_flow(); }
  }
  ~trial() {
    hostrt::release_stalls();
    for (auto const& each : flows_) {
      if (!each->closed()) { static_cast<void>(cudaStreamSynchronize(each->on().handle())); }
    }
    for (auto const& each : flows_) {
      release_noexcept([&] { each->close(); });
    }
    hostrt::reset();  // memory of a device that was lost is released as well
  }
  trial(trial const&) = delete;
  trial& operator=(trial const&) = delete;
  trial(trial&&) = delete;
  trial& operator=(trial&&) = delete;

  void run(outcomes& found) {
    run_plan const plan{below(3) == 0 ? 0.25 : below(10) * 1e-3, 0.2, below(2) == 0, 60};
    std::thread troubling{
        [this, delay = std::chrono::microseconds{below(2) * below(8000)}, kind = below(9)] {
          std::this_thread::sleep_for(delay);
          trouble(kind);
        }};
    try {
      auto const stamps = run_flows(all_flows(), plan, [this] { return interrupted_.load(); });
      ++(is_right(stamps) ? found.right : found.wrong);
    } catch (device_lost_error const&) { ++found.lost; } catch (cuda_error const&) {
      ++found.failed;
    } catch (timeout_error const&) { ++found.late; } catch (cancelled_error const&) {
      ++found.cancelled;
    } catch (std::invalid_argument const&) { ++found.refused; }
    troubling.join();
  }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned int>(limit)); }

  /// Each has memory of its own.
  void add_flow() {
    auto& ends = ends_.emplace_back(below(devices_));
    auto const kind = below(4);
    auto const plan = kind == 0   ? ends.chase(100)
                      : kind == 1 ? ends.upload(flow_engine::sm)
                                  : ends.upload();
    flows_.push_back(std::make_unique<flow>(plan, kind == 3 ? nullptr : &ends.with));
  }

  void trouble(int kind) {
    static std::array<char const*, 5> const calls{
        "cudaMemcpyAsync", "cuLaunchKernel", "cuEventRecord", "cuEventQuery", "cudaLaunchHostFunc"};
    auto const* const call = calls.at(ends_.size() * static_cast<std::size_t>(devices_) % 5);
    switch (kind) {
      case 0: hostrt::fail(call, 1, cudaErrorNotSupported); return;
      case 1: hostrt::fail_sticky(call, 3, cudaErrorLaunchFailure); return;
      case 2: hostrt::lose_one_device(devices_ - 1, cudaErrorIllegalAddress); return;
      case 3: hostrt::hang_device(devices_ - 1); return;
      case 4: hostrt::stall(call, 2, 1); return;
      case 5: interrupted_ = true; return;
      case 6:
        try {
          flows_.back()->close();
          ends_.back().with.close();
        } catch (std::logic_error const&) {}  // the run uses it
        return;
      default: return;
    }
  }

  [[nodiscard]] std::vector<flow*> all_flows() const {
    std::vector<flow*> found;
    for (auto const& each : flows_) { found.push_back(each.get()); }
    return found;
  }

  [[nodiscard]] bool is_right(std::vector<flow_stamps> const& stamps) const {
    for (std::size_t i = 0; i < flows_.size(); ++i) {
      auto const& own = stamps.at(i);
      auto const is_chase = flows_[i]->plan().engine == flow_engine::chase;
      if (own.end_ns.empty() || own.end_ns.size() != own.begin_ns.size()) { return false; }
      if (!is_chase && !ends_[i].arrived()) { return false; }
    }
    return true;
  }

  std::mt19937& random_;
  int devices_;
  std::deque<link_ends> ends_;
  std::vector<std::unique_ptr<flow>> flows_;
  std::atomic<bool> interrupted_{false};
};

using links_stress = engine_test;

/// Beside failing calls, devices that hang or are lost, interruptions, and flows that are closed.
TEST_F(links_stress, ends_every_run_and_leaves_nothing) {
  auto const seconds = number_from("PYXFER_STRESS_S", 1);
  ::alarm(static_cast<unsigned int>(seconds) + limit_s());
  std::mt19937 random{11};
  outcomes found;
  auto const until = now_s() + seconds;
  long rounds = 0;
  // A busy machine may need longer for a right run. The alarm ends the test if there is none.
  for (; now_s() < until || found.right == 0; ++rounds) {
    trial{random}.run(found);
    ASSERT_EQ(found.wrong, 0) << "in round " << rounds;
    static_cast<void>(take_cleanup_failures());
    ASSERT_EQ(made(), std::vector<std::string>{}) << "after round " << rounds;
  }
  std::cerr << rounds << " runs: " << found.right << " right, " << found.failed << " failed, "
            << found.lost << " lost, " << found.late << " late, " << found.cancelled
            << " cancelled, " << found.refused << " refused\n";
}

}  // namespace
}  // namespace pyxfer::tests
