#include "trace/tracer.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/process.hpp"
#include "trace/error.hpp"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace pyxfer::trace {
namespace {

/// Whether every other library would be refused too.
bool is_final(refusal const& refused) {
  return refused.code() == cupti::result::multiple_subscribers ||
         refused.code() == cupti::result::insufficient_privileges ||
         refused.code() == cupti::result::virtualized_insufficient_privileges;
}

/// Returns its argument. It makes the check for a fork come before any library is opened.
std::vector<candidate> after_fork_check(std::vector<candidate> libraries) {
  note_process();
  return libraries;
}

}  // namespace

tracer::tracer(std::vector<candidate> libraries, std::vector<std::string> const& kinds,
               std::size_t capacity_bytes)
    : kinds_{kinds_of(kinds)},
      gathering_{std::make_shared<gathering>(capacity_bytes)},
      choice_{after_fork_check(std::move(libraries))} {}

tracer::~tracer() {
  release_noexcept([this] { close(); });
}

std::string tracer::library_name() const {
  note_process();
  std::scoped_lock const lock{mutex_};
  return choice_.used().name;
}

std::uint32_t tracer::version() const {
  note_process();
  std::scoped_lock const lock{mutex_};
  return choice_.used().version;
}

std::map<std::string, std::string> tracer::refused() const {
  note_process();
  std::scoped_lock const lock{mutex_};
  return refused_;
}

void tracer::start() {
  note_process();
  std::scoped_lock const lock{mutex_};
  if (closed_) { throw std::logic_error("the tracer is closed: make another one"); }
  while (true) {
    try {
      begin();
      return;
    } catch (refusal const& refused) {
      if (is_final(refused)) { throw trace_unavailable_error(advice_for(refused)); }
      choice_.refuse(advice_for(refused));
    }
  }
}

void tracer::begin() {
  auto started = std::make_unique<collection>(choice_.used(), kinds_, gathering_);
  compared_ = compare();
  error_ns_ = std::max(error_ns_, compared_.error_ns);
  refused_ = started->refused();
  running_ = std::move(started);
}

void tracer::stop() {
  note_process();
  std::scoped_lock const lock{mutex_};
  end();
}

void tracer::end() {
  auto const ended = std::exchange(running_, nullptr);
  if (!ended) { return; }
  closing all;
  all.close(*ended);
  all.run([this] {
    auto const before = compared_;
    compare_again(compare());
    gathering_->convert(before, compared_);
  });
  all.finish();
}

taken tracer::take() {
  note_process();
  std::scoped_lock const lock{mutex_};
  if (closed_) {
    throw std::logic_error("the tracer is closed: take its records before you close it");
  }
  auto const before = compared_;
  if (running_) {
    running_->flush();
    compare_again(compare());
  }
  auto found = gathering_->take();
  convert_times(found.records, found.converted, before, compared_);
  return {std::move(found.records), std::move(found.names), std::move(found.dropped),
          std::exchange(error_ns_, compared_.error_ns), std::exchange(drift_ns_, 0)};
}

void tracer::close() {
  if (!same_process()) { return; }
  std::scoped_lock const lock{mutex_};
  closed_ = true;
  end();
  gathering_.reset();
}

clock_comparison tracer::compare() const {
  auto const& call = choice_.used().call;
  return compare_clocks([&call] {
    std::uint64_t now = 0;
    check(call, "cuptiGetTimestamp", call.get_timestamp(&now));
    return static_cast<std::int64_t>(now);
  });
}

void tracer::compare_again(clock_comparison const& now) {
  error_ns_ = std::max(error_ns_, now.error_ns);
  drift_ns_ += std::abs(now.offset_ns() - compared_.offset_ns());
  compared_ = now;
}

}  // namespace pyxfer::trace
