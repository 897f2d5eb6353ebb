#include "blocks/index_slots.hpp"

#include "cuda/error.hpp"

#include <algorithm>

namespace pyxfer {

/// Before slots are added, those of which the device has passed the kernel are used.
index_slots::slot* index_slots::find_free() {
  std::scoped_lock const held{mutex_};
  for (auto const& each : slots_) {
    if (!each->taken && each->passed.passed()) {
      each->taken = true;
      return each.get();
    }
  }
  if (slots_.size() == most_slots) { return nullptr; }
  slots_.push_back(std::make_unique<slot>(device_, most_pairs * sizeof(packed_pair)));
  return slots_.back().get();
}

index_slots::slot& index_slots::take(interruption const& interrupted) {
  slot* found = nullptr;
  poll_until([&] { return (found = find_free()) != nullptr; },
             [&] { return interrupted && interrupted(); },
             "cancelled while it waited for the device");
  return *found;
}

void index_slots::give_back(slot& used) {
  std::scoped_lock const held{mutex_};
  used.taken = false;
}

bool index_slots::is_idle() {
  std::scoped_lock const held{mutex_};
  return std::all_of(slots_.begin(), slots_.end(),
                     [](auto const& each) { return each->taken || each->passed.passed(); });
}

void index_slots::close() {
  std::scoped_lock const held{mutex_};
  closing all;
  for (auto const& each : slots_) {
    all.close(each->host);
    all.close(each->memory);
    all.close(each->passed);
  }
  slots_.clear();
  all.finish();
}

void index_slots::abandon() noexcept {
  for (auto const& each : slots_) {
    each->host.abandon();
    each->memory.abandon();
    each->passed.abandon();
  }
}

}  // namespace pyxfer
