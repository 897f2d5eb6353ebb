#include "ring/crew.hpp"

#include "cuda/driver.hpp"
#include "cuda/error.hpp"
#include "cuda/wait.hpp"

namespace pyxfer {
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
  seats_ = others;
  came_.ring(others);
  work(0);
  await_return(others - seats_.exchange(0));
}

void crew::await_return(int seats) {
  auto const all_done = [&] { return done_ == seats; };
  spin_until(all_done);
  awaited_ = true;
  for (auto rings = left_.rings(); !all_done(); rings = left_.rings()) { left_.sleep(rings); }
  awaited_ = false;
}

void crew::serve() {
  for (auto rings = came_.rings(); !ended_; rings = came_.rings()) {
    auto const seat = take_seat();
    if (seat == 0) {
      spin_until([&] { return came_.rings() != rings; });
      came_.sleep(rings);
      continue;
    }
    (*work_)(seat);
    ++done_;
    if (awaited_) { left_.ring(1); }
  }
}

/// 0 where none is free.
int crew::take_seat() noexcept {
  auto free = seats_.load();
  while (free != 0 && !seats_.compare_exchange_weak(free, free - 1)) {}
  return free;
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
  ended_ = true;
  came_.ring(static_cast<int>(threads_.size()));
  for (auto& each : threads_) { each.join(); }
  threads_.clear();
}

}  // namespace pyxfer
