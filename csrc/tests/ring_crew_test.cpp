#include "ring/crew.hpp"

#include "cuda/device.hpp"
#include "engine_support.hpp"
#include "futex_calls.hpp"

#include <pthread.h>
#include <sched.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace pyxfer::tests {
namespace {

/// Whether a thread of this process waits in the kernel.
bool is_asleep(pid_t thread) {
  std::ifstream file{"/proc/self/task/" + std::to_string(thread) + "/stat"};
  std::string text;
  std::getline(file, text);
  auto const name_ends = text.rfind(')');
  return name_ends != std::string::npos && text.compare(name_ends, 3, ") S") == 0;
}

TEST(ring_bell, wakes_all_sleeping_threads) {
  bell made;
  std::atomic<bool> over{false};
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 8; ++i) {
    sleepers.emplace_back([&] {
      for (auto rings = made.rings(); !over; rings = made.rings()) { made.sleep(rings); }
    });
  }
  over = true;
  made.ring(8);
  for (auto& sleeper : sleepers) { sleeper.join(); }
}

TEST(ring_bell, has_rung_before_it_wakes_a_thread) {
  bell made;
  std::atomic<int> sleeps{0};
  std::atomic<pid_t> id{0};
  std::atomic<bool> woken{false};
  futex_calls const calls{[&] { ++sleeps; },
                          [&] { await([&] { return woken || (sleeps > 1 && is_asleep(id)); }); }};
  std::thread sleeper{[&] {
    id = ::gettid();
    while (made.rings() == 0) { made.sleep(0); }
    woken = true;
  }};
  while (sleeps == 0) { std::this_thread::yield(); }
  made.ring(1);
  sleeper.join();
}

TEST(ring_bell, lets_no_thread_sleep_if_it_was_rung_since) {
  bell made;
  auto const before = made.rings();
  made.ring(0);
  made.sleep(before);  // returns, because the bell was rung
  EXPECT_NE(made.rings(), before);
}

class ring_crew : public engine_test {
 protected:
  [[nodiscard]] static CUcontext context() { return primary_context(0); }
};

/// A barrier for a number of threads, which also collects their seats.
class barrier {
 public:
  explicit barrier(std::size_t wanted) : wanted_{wanted} {}
  void join(int seat) {
    std::unique_lock held{lock_};
    seats_.insert(seat);
    came_.notify_all();
    came_.wait(held, [this] { return seats_.size() >= wanted_; });
  }
  [[nodiscard]] std::multiset<int> const& seats() const { return seats_; }

 private:
  std::size_t wanted_;
  std::mutex lock_;
  std::condition_variable came_;
  std::multiset<int> seats_;
};

TEST_F(ring_crew, runs_the_work_in_the_callers_thread_and_in_others_at_once) {
  crew made{context(), 3, 20e-6};
  for (int i = 0; i < 50; ++i) {
    barrier all{4};
    std::atomic<int> in_caller{-1};
    auto const caller = std::this_thread::get_id();
    made.run(3, [&](int seat) {
      if (std::this_thread::get_id() == caller) { in_caller = seat; }
      all.join(seat);
    });
    EXPECT_EQ(all.seats(), (std::multiset<int>{0, 1, 2, 3}));
    EXPECT_EQ(in_caller, 0);
  }
}

TEST_F(ring_crew, has_the_context_current_in_its_threads) {
  crew made{context(), 1, 0};
  std::array<CUcontext, 2> found{};
  barrier both{2};
  made.run(1, [&](int seat) {
    if (seat == 1) { EXPECT_EQ(driver().cuCtxGetCurrent(&found.at(1)), CUDA_SUCCESS); }
    both.join(seat);
  });
  EXPECT_EQ(found.at(1), context());
}

TEST_F(ring_crew, returns_when_all_threads_with_a_seat_are_done) {
  crew made{context(), 3, 0};
  for (int i = 0; i < 50; ++i) {
    barrier all{4};
    std::atomic<int> done{0};
    made.run(3, [&](int seat) {
      all.join(seat);
      if (seat != 0) { std::this_thread::yield(); }
      ++done;
    });
    EXPECT_EQ(done, 4);
  }
}

TEST_F(ring_crew, does_not_wait_for_seats_that_no_thread_takes) {
  crew made{context(), 0, 0};
  std::vector<int> seats;
  made.run(3, [&](int seat) { seats.push_back(seat); });
  EXPECT_EQ(seats, std::vector<int>{0});
}

/// Its thread goes to sleep late, when the work has ended, and looks for a seat again.
TEST_F(ring_crew, gives_no_seat_of_work_that_has_ended) {
  std::atomic<int> sleeps{0};
  std::atomic<bool> ended{false};
  futex_calls const calls{[&] {
                            ++sleeps;
                            await([&] { return ended.load(); });
                          },
                          [] {}};
  crew made{context(), 1, 0};
  await([&] { return sleeps == 1; });
  std::atomic<int> runs{0};
  crew::seat_work const work{[&](int /*seat*/) { ++runs; }};
  made.run(1, work);
  ended = true;
  await([&] { return sleeps == 2; });
  EXPECT_EQ(runs, 1);
  made.close();
}

// ThreadSanitizer runs the handler later, with a copy of the registers.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)

constexpr auto trap_flag = 0x100ULL;

// What the handler of the trap reads and writes.
std::atomic<int> steps_left{0};
std::atomic<bool> is_held{false};
std::atomic<bool> other_sleeps{false};

/// Comes after each instruction of the caller; after the last one wanted, the other thread ends.
void step(int /*signal*/, siginfo_t* /*info*/, void* interrupted) {
  if (--steps_left > 0) { return; }
  is_held = true;
  while (!other_sleeps) { sched_yield(); }
  static_cast<ucontext_t*>(interrupted)->uc_mcontext.gregs[REG_EFL] &=
      ~static_cast<greg_t>(trap_flag);
}

/// On the caller's way to sleep the other thread ends after the first instruction, then after the
/// second, and so on.
TEST_F(ring_crew, loses_no_wake_up_of_its_caller) {
  struct sigaction stepping{};
  struct sigaction before{};
  stepping.sa_sigaction = &step;
  stepping.sa_flags = SA_SIGINFO;
  ASSERT_EQ(sigaction(SIGTRAP, &stepping, &before), 0);
  auto const caller = std::this_thread::get_id();
  std::atomic<bool> reached_sleep{false};
  futex_calls const calls{[&] {
                            if (std::this_thread::get_id() != caller) {
                              other_sleeps = true;
                            } else if (!is_held) {
                              reached_sleep = true;
                            }
                          },
                          [] {}};
  crew made{context(), 1, 0};
  int done = 0;
  rounds all{100'000};
  while (!reached_sleep && all.another()) {
    std::atomic<bool> came{false};
    is_held = false;
    made.run(1, [&](int seat) {
      if (seat == 1) {
        other_sleeps = false;
        came = true;
        await([&] { return is_held || reached_sleep; });
        ++done;
        return;
      }
      await([&] { return came.load(); });
      steps_left = all.begun();
      __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | trap_flag);
    });
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~trap_flag);
  }
  EXPECT_EQ(done, all.begun());
  EXPECT_GT(done, 100);
  made.close();
  sigaction(SIGTRAP, &before, nullptr);
}

#endif

/// The thread that has woken its caller goes on when the caller has returned, or sleeps again.
TEST_F(ring_crew, counts_a_thread_before_it_wakes_its_caller) {
  crew made{context(), 1, 0};
  auto const caller = std::this_thread::get_id();
  auto const id = ::gettid();
  auto const is_caller = [&] { return std::this_thread::get_id() == caller; };
  std::atomic<int> sleeps{0};
  std::atomic<bool> came{false};
  std::atomic<bool> returned{false};
  futex_calls const calls{
      [&] { sleeps += is_caller() ? 1 : 0; },
      [&] { await([&] { return is_caller() || returned || (sleeps > 1 && is_asleep(id)); }); }};
  made.run(1, [&](int seat) {
    came = came || seat == 1;
    await([&] { return seat == 0 ? came.load() : sleeps > 0; });
  });
  returned = true;
  made.close();
}

TEST_F(ring_crew, blocks_signals_in_its_threads_and_names_them) {
  crew made{context(), 1, 0};
  std::array<char, 16> name{};
  sigset_t blocked;
  barrier both{2};
  made.run(1, [&](int seat) {
    if (seat == 1) {
      pthread_getname_np(pthread_self(), name.data(), name.size());
      pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    }
    both.join(seat);
  });
  EXPECT_STREQ(name.data(), "pyxfer-crew");
  EXPECT_EQ(sigismember(&blocked, SIGINT), 1);
  EXPECT_EQ(sigismember(&blocked, SIGTERM), 1);
}

TEST_F(ring_crew, wakes_no_thread_if_the_caller_is_enough) {
  crew made{context(), 2, 0};
  std::set<std::thread::id> used;
  for (int i = 0; i < 20; ++i) {
    made.run(0, [&](int /*seat*/) { used.insert(std::this_thread::get_id()); });
  }
  EXPECT_EQ(used, std::set<std::thread::id>{std::this_thread::get_id()});
}

TEST_F(ring_crew, uses_no_processor_while_it_waits) {
  crew made{context(), 8, 50e-6};
  barrier all{9};
  made.run(8, [&](int seat) { all.join(seat); });
  std::this_thread::sleep_for(std::chrono::milliseconds{5});  // longer than threads spin
  auto const before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds{200});
  auto const used_s = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(used_s, 0.01);
}

TEST_F(ring_crew, is_awake_after_an_alert_and_sleeps_again_if_no_work_comes) {
  std::mutex lock;
  std::map<std::thread::id, int> sleeps;
  auto const all_slept = [&](int times) {
    std::scoped_lock const held{lock};
    return sleeps.size() == 3 && std::all_of(sleeps.begin(), sleeps.end(), [=](auto const& each) {
             return each.second >= times;
           });
  };
  futex_calls const calls{[&] {
                            std::scoped_lock const held{lock};
                            ++sleeps[std::this_thread::get_id()];
                          },
                          [] {}};
  crew made{context(), 3, 0};
  await([&] { return all_slept(1); });
  made.alert();
  await([&] { return all_slept(2); });
  made.alert();
  barrier all{4};
  made.run(3, [&](int seat) { all.join(seat); });
  EXPECT_EQ(all.seats(), (std::multiset<int>{0, 1, 2, 3}));
  made.close();
}

TEST_F(ring_crew, can_be_closed_twice) {
  crew made{context(), 4, 0};
  made.close();
  made.close();
}

}  // namespace
}  // namespace pyxfer::tests
