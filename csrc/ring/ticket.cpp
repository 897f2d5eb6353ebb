#include "ring/ticket.hpp"

#include "cuda/error.hpp"
#include "cuda/process.hpp"

#include <algorithm>
#include <chrono>
#include <sstream>

namespace pyxfer {
namespace {

/// Longer waits are as good as endless ones, and could not be counted in nanoseconds.
constexpr double longest_s = 1e9;

}  // namespace

bool ticket::done() const {
  note_process();
  return ends_.wait_for(std::chrono::seconds{0}) == std::future_status::ready;
}

staged ticket::result(double seconds) const {
  note_process();
  std::chrono::duration<double> const limit{seconds > 0 ? std::min(seconds, longest_s) : 0.0};
  if (ends_.wait_for(limit) != std::future_status::ready) {
    std::ostringstream text;
    text << "The upload has not ended within " << seconds
         << " s. It goes on: ask again, or cancel the ring's transfers.";
    throw timeout_error(text.str());
  }
  return ends_.get();
}

}  // namespace pyxfer
