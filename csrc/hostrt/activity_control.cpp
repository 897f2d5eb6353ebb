#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "activity.hpp"
#include "activity_buffers.hpp"
#include "activity_clock.hpp"
#include "activity_control.hpp"
#include "activity_refusals.hpp"
#include "control.hpp"
#include "loss.hpp"
#include "stream_registry.hpp"
#include "trace/cupti_records.hpp"

namespace pyxfer::hostrt {
namespace {

/// A name for good, as that of a kernel in a module that stays loaded.
char const* kept(std::string const& name) {
  static auto& mutex = *new std::mutex;
  static auto& names = *new std::set<std::string>;
  std::scoped_lock const lock{mutex};
  return names.insert(name).first->c_str();
}

struct open_mark {
  std::string name;
  std::uint32_t id;
};

std::vector<open_mark>& this_threads_marks() {
  thread_local std::vector<open_mark> open;
  return open;
}

cupti::result result_code(int code) {
  constexpr int most = 999;
  if (code < 0 || code > most) {
    throw std::invalid_argument{std::to_string(code) + " is no result of CUPTI"};
  }
  return static_cast<cupti::result>(code);
}

std::uint32_t end_mark(std::string const& name) {
  auto& open = this_threads_marks();
  auto const found = std::find_if(open.rbegin(), open.rend(),
                                  [&](open_mark const& each) { return each.name == name; });
  if (found == open.rend()) {
    throw std::invalid_argument{"no range '" + name + "' is open in this thread"};
  }
  auto const id = found->id;
  open.erase(std::next(found).base());
  return id;
}

}  // namespace

void kernel(std::string const& name, double seconds, std::uintptr_t stream) {
  auto const on = streams().find(reinterpret_cast<cudaStream_t>(stream));
  if (!on) throw std::invalid_argument{std::to_string(stream) + " is no stream"};
  if (!(seconds >= 0)) throw std::invalid_argument{"a kernel cannot take less than no time"};
  auto const* const shown = kept(name);
  activity_place const where{on->device(), on->id(), tracing() ? next_correlation() : 0};
  streams().enqueue(on, [=](work_start const& start) {
    auto const end = start.ready + as_duration(seconds);
    auto const lost = [&] { return !is_current(start.epoch); };
    pause_until(end, lost);
    if (where.correlation != 0 && !lost()) emit_kernel(where, {start.ready, end}, shown);
    return end;
  });
}

void mark(std::string const& name, bool begin) {
  if (!begin) {
    emit_marker(end_mark(name), cupti::marker_end, nullptr);
    return;
  }
  auto const id = next_correlation();
  this_threads_marks().push_back({name, id});
  emit_marker(id, cupti::marker_begin, kept(name));
}

void skew_clock(std::int64_t ns_offset, double ns_per_s) {
  skew_activity_clock(ns_offset, ns_per_s);
}

void refuse_activity(int code) { refusals().refuse_subscription(result_code(code)); }

void refuse_kind(int kind, int code) {
  refusals().refuse_kind(static_cast<cupti::activity_kind>(kind), result_code(code));
}

void other_subscriber(bool there) { refusals().set_other_subscriber(there); }

void lose_records(std::size_t count) { buffers().lose(count); }

void reset_activity() {
  refusals().reset();
  skew_activity_clock(0, 0);
  this_threads_marks().clear();
  static_cast<void>(buffers().take_dropped());
}

}  // namespace pyxfer::hostrt
