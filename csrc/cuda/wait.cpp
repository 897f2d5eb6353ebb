#include "cuda/wait.hpp"

#include "cuda/error.hpp"

#include <sstream>
#include <thread>

namespace pyxfer {
namespace {

template <typename Ended>
bool poll(event const& until, double seconds, Ended const& ended) {
  polling const rest;
  while (!until.passed()) {
    if (rest.waited_s() >= seconds || ended()) { return until.passed(); }
    rest.pause();
  }
  return true;
}

}  // namespace

bool polling::pause() const {
  if (waited_s() >= spin_s_) {
    std::this_thread::sleep_for(nap_);
    return true;
  }
  std::this_thread::yield();  // the awaited work may need this core
  return false;
}

bool wait_for(event const& until, double seconds, std::atomic<bool> const* cancelled) {
  return poll(until, seconds,
              [&] { return cancelled != nullptr && cancelled->load(std::memory_order_relaxed); });
}

void wait(event const& until, patience const& limit, char const* what) {
  if (poll(until, limit.seconds(), [&] { return limit.cancelled(); })) { return; }
  if (limit.cancelled()) { throw cancelled_error(std::string{"cancelled during "} + what); }
  std::ostringstream text;
  text << "The device did not finish " << what << " within " << limit.seconds()
       << " s. Another program may hold it, or it has hung: look at nvidia-smi and for Xid in "
          "dmesg.";
  throw timeout_error(text.str());
}

}  // namespace pyxfer
