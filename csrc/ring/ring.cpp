#include "ring/ring.hpp"

#include "cuda/cleanup.hpp"
#include "cuda/device.hpp"
#include "cuda/error.hpp"
#include "cuda/event.hpp"
#include "cuda/process.hpp"
#include "ring/backlog.hpp"
#include "ring/cancels.hpp"
#include "ring/staging.hpp"
#include "ring/turns.hpp"

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

namespace pyxfer {
namespace {

ring_settings checked(ring_settings made) {
  validate(made);
  return made;
}

void require_device_memory(std::uintptr_t address, layout const& array) {
  if (address == 0 && array.bytes() != 0) {
    throw std::invalid_argument("a transfer needs the address of its memory on the device");
  }
}

/// What is still in use stays, where tools that look for leaks see it. In a forked child nothing
/// does; there it is left as it is.
void leave(void* state) {
  if (!same_process()) { return; }
  static std::mutex lock;
  static auto& left = *new std::vector<void*>;
  release_noexcept([state] {
    std::scoped_lock const held{lock};
    left.push_back(state);
  });
}

}  // namespace

/// What a forked child must leave as it is: the threads are not there, and nobody wakes who waits.
struct ring::state {
  state(int on, ring_settings const& made)
      : context{primary_context(on)},
        begins{on, event_use::order},
        moving{std::make_unique<staging>(on, context, made)} {}

  staged run(staging_request request, std::optional<stream_view> after, std::uint64_t before);

  CUcontext context;
  turns line;
  cancels cancelled;
  event begins;
  std::unique_ptr<staging> moving;  ///< none when it is closed
  std::atomic<bool> abandoned{false};
  backlog waiting;
};

staged ring::state::run(staging_request request, std::optional<stream_view> after,
                        std::uint64_t before) {
  context_guard const guard{context};
  if (after) {
    begins.record(*after);
    request.begins = &begins;
  }
  return moving->run(request, cancelled, before);
}

ring::ring(int device, ring_settings const& made)
    : settings_{checked(made)},
      device_{device},
      state_{std::make_unique<state>(device, settings_)} {}

ring::~ring() {
  release_noexcept([this] { close(); });
  if (!same_process() || state_->abandoned || state_->moving) { leave(state_.release()); }
}

staged ring::upload(layout const& from, std::uintptr_t to, std::optional<stream_view> after,
                    bool wait) {
  note_process();
  require_device_memory(to, from);
  auto const before = state_->cancelled.so_far();
  auto turn = state_->line.take();
  turn.await();
  return state_->run({direction::h2d, from, to, nullptr, after, wait, false}, after, before);
}

staged ring::download(std::uintptr_t from, layout const& to, std::optional<stream_view> after) {
  note_process();
  require_device_memory(from, to);
  validate_destination(to);
  auto const before = state_->cancelled.so_far();
  auto turn = state_->line.take();
  turn.await();
  return state_->run({direction::d2h, to, from, nullptr, std::nullopt, false, false}, after,
                     before);
}

ticket ring::start_upload(layout const& from, std::uintptr_t to, std::optional<stream_view> after) {
  note_process();
  require_device_memory(to, from);
  auto* const used = state_.get();
  auto const before = used->cancelled.so_far();
  std::optional<event> begins;
  if (after) {  // now: what the caller does next on his stream is not to be waited for
    context_guard const guard{used->context};
    begins.emplace(device_, event_use::order);
    begins->record(*after);
  }
  // A task lives as long as its ticket: the turn and the event must go when it has been done.
  backlog::task task{
      [used, from, to, before, begins = std::move(begins), turn = used->line.take()]() mutable {
        auto const first = std::move(begins);
        auto place = std::move(turn);
        place.await();
        staging_request const request{direction::h2d, from, to,  first ? &*first : nullptr,
                                      std::nullopt,   true, true};
        return used->run(request, std::nullopt, before);
      }};
  ticket made{task.get_future().share()};
  used->waiting.add(std::move(task));
  return made;
}

void ring::cancel() noexcept { state_->cancelled.cancel(); }

void ring::close(double patience_s) {
  if (!same_process() || state_->abandoned) { return; }
  auto turn = state_->line.take_last();
  turn.await();
  if (!state_->moving) { return; }
  try {
    state_->moving->await_idle(patience_s);
  } catch (cuda_error const& error) { note_cleanup_failure(error); }  // all goes either way
  state_->waiting.close();
  closing all;
  all.close(*state_->moving);
  all.close(state_->begins);
  state_->moving.reset();
  all.finish();
}

void ring::abandon() noexcept {
  if (!same_process()) { return; }
  state_->abandoned = true;
  state_->line.abandon();
  state_->cancelled.cancel();
}

}  // namespace pyxfer
