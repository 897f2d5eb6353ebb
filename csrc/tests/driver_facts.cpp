#include "driver_facts_support.hpp"

namespace pyxfer::facts {
namespace {

void ask_of_a_destroyed_context(questions& all, std::function<void()> const& destroy_context) {
  destroy(all.other);
  destroy_context();
  all.add("cuEventQuery when its context has been destroyed", "709", text(query(all.event)));
}

}  // namespace

void ask_driver(std::function<void()> const& destroy_context,
                std::function<void(fact const&)> const& report) {
  static_cast<void>(cudaSetDevice(0));
  questions all{report};
  ask_of_captures(all);
  ask_of_captured_streams(all);
  ask_of_registrations(all);
  ask_of_pointers(all);
  ask_of_read_only_memory(all);
  ask_of_pageable_copies(all);
  ask_of_releases(all);
  ask_of_streams_and_events(all);
  ask_of_threads_without_a_context(all);
  ask_of_a_destroyed_context(all, destroy_context);
}

}  // namespace pyxfer::facts
