#include "ring/crew.hpp"

#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/error.hpp"
#include "cuda/process.hpp"
#include "cuda/wait.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>

namespace pyxfer {
namespace {

/// The Python of an upload takes up to this long after a pause.
constexpr std::chrono::microseconds expected_within{300};

}  // namespace

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t) &&
                  std::atomic<std::uint32_t>::is_always_lock_free,
              "the futex call reads the number directly");

void bell::sleep(std::uint32_t since) noexcept {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg): the C library has no wrapper for it
  ::syscall(SYS_futex, &rings_, FUTEX_WAIT_PRIVATE, since, nullptr, nullptr, 0);
}

void bell::ring(int most) noexcept {
  ++rings_;
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-vararg)
  ::syscall(SYS_futex, &rings_, FUTEX_WAKE_PRIVATE, most, nullptr, nullptr, 0);
}

crew::crew(CUcontext context, int threads, double spin_s) : spin_s_{spin_s} {
  try {
    threads_.reserve(static_cast<std::size_t>(threads));
    for (int i = 0; i < threads; ++i) { start(context); }
  } catch (...) {
    close();
    throw;
  }
}

void crew::start(CUcontext context) {
  auto const ready = std::make_shared<std::promise<void>>();
  auto started = ready->get_future();
  threads_.push_back(start_thread("pyxfer-crew", [this, context, ready] {
    try {
      PYXFER_TRY(driver().cuCtxSetCurrent(context));
      relax_captures_in_this_thread();
    } catch (...) {
      ready->set_exception(std::current_exception());
      return;
    }
    ready->set_value();
    serve();
  }));
  started.get();
}

/// It wakes one thread, because a system call for each of the others would delay its caller.
void crew::alert() noexcept {
  expects_.store(host_clock::now() + expected_within, std::memory_order_relaxed);
  alerted_ = true;
  work_came_.ring(1);
}

void crew::run(int others, seat_work const& work) {
  if (others == 0) {
    work(0);
    return;
  }
  work_ = &work;
  done_ = 0;
  seats_ = others;
  work_came_.ring(others);
  work(0);
  expects_.store({}, std::memory_order_relaxed);
  await_done(others - seats_.exchange(0));
}

void crew::await_done(int seats) {
  auto const all_done = [&] { return done_ == seats; };
  spin_until(all_done);
  awaited_ = true;
  for (auto rings = one_done_.rings(); !all_done(); rings = one_done_.rings()) {
    one_done_.sleep(rings);
  }
  awaited_ = false;
}

void crew::serve() {
  for (auto rings = work_came_.rings(); !ended_; rings = work_came_.rings()) {
    auto const seat = take_seat();
    if (seat == 0) {
      if (alerted_.exchange(false)) { work_came_.ring(static_cast<int>(threads_.size())); }
      spin_until([&] { return work_came_.rings() != rings; });
      work_came_.sleep(rings);
      continue;
    }
    (*work_)(seat);
    ++done_;
    if (awaited_) { one_done_.ring(1); }
  }
}

/// Returns 0 if no seat is free.
int crew::take_seat() noexcept {
  auto free = seats_.load();
  while (free != 0 && !seats_.compare_exchange_weak(free, free - 1)) {}
  return free;
}

/// Yields the core between two checks, because the awaited work may need it.
template <typename Done>
void crew::spin_until(Done const& done) const {
  auto const begin = host_clock::now();
  for (auto now = begin; !done(); now = host_clock::now()) {
    if (seconds_between(begin, now) >= spin_s_ && now >= expects_.load(std::memory_order_relaxed)) {
      return;
    }
    std::this_thread::yield();
  }
}

void crew::close() noexcept {
  ended_ = true;
  work_came_.ring(static_cast<int>(threads_.size()));
  for (auto& thread : threads_) { thread.join(); }
  threads_.clear();
}

}  // namespace pyxfer
