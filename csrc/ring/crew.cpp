#include "ring/crew.hpp"

#include "cuda/driver.hpp"
#include "cuda/error.hpp"
#include "cuda/wait.hpp"

namespace pyxfer {
namespace {

/// To wake so many one by one costs less than to wake threads that are not needed.
constexpr int few = 3;

}  // namespace

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
  std::promise<void> ready;
  auto started = ready.get_future();
  threads_.emplace_back([this, context, told = std::move(ready)]() mutable {
    try {
      PYXFER_TRY(driver().cuCtxSetCurrent(context));
    } catch (...) {
      told.set_exception(std::current_exception());
      return;
    }
    told.set_value();
    serve();
  });
  started.get();
}

void crew::run(int others, seat_work const& work) {
  if (others == 0) {
    work(0);
    return;
  }
  work_ = &work;
  done_ = 0;
  {
    std::scoped_lock const held{lock_};  // or a thread that is about to sleep would not see them
    seats_ = others;
  }
  if (others > few) {
    came_.notify_all();  // one call of the system; who finds no seat sleeps again
  } else {
    for (int i = 0; i < others; ++i) { came_.notify_one(); }
  }
  work(0);
  await_return(others - seats_.exchange(0));
}

void crew::await_return(int seats) {
  auto const all_done = [&] { return done_ == seats; };
  spin_until(all_done);
  std::unique_lock held{lock_};
  awaited_ = seats;
  left_.wait(held, all_done);
  awaited_ = nobody;
}

void crew::serve() {
  while (await_seat()) {
    auto const seat = take_seat();
    if (seat == 0) { continue; }
    (*work_)(seat);
    std::scoped_lock const held{lock_};
    if (++done_ == awaited_) { left_.notify_one(); }
  }
}

/// 0 where none is free.
int crew::take_seat() noexcept {
  auto free = seats_.load();
  while (free != 0 && !seats_.compare_exchange_weak(free, free - 1)) {}
  return free;
}

/// Whether there may be one; false when the thread has to end.
bool crew::await_seat() {
  auto const news = [this] { return seats_ != 0 || ended_; };
  spin_until(news);
  std::unique_lock held{lock_};
  came_.wait(held, news);
  return !ended_;
}

/// Gives the core away between two looks: the work that is waited for may need it.
template <typename Done>
void crew::spin_until(Done const& done) const {
  auto const begin = host_clock::now();
  while (!done() && seconds_between(begin, host_clock::now()) < spin_s_) {
    std::this_thread::yield();
  }
}

void crew::close() noexcept {
  {
    std::scoped_lock const held{lock_};
    ended_ = true;
  }
  came_.notify_all();
  for (auto& each : threads_) { each.join(); }
  threads_.clear();
}

}  // namespace pyxfer
