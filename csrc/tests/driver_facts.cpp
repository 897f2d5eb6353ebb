#include "driver_facts_support.hpp"

namespace pyxfer::facts {
namespace {

void check_a_destroyed_context(fact_report& all, std::function<void()> const& destroy_context) {
  destroy(all.other);
  destroy_context();
  all.add("cuEventQuery when its context has been destroyed", "709", text(query(all.event)));
}

}  // namespace

void check_driver(std::function<void()> const& destroy_context,
                  std::function<void(fact const&)> const& report) {
  static_cast<void>(cudaSetDevice(0));
  fact_report all{report};
  check_captures(all);
  check_captured_streams(all);
  check_registrations(all);
  check_pointers(all);
  check_direct_access(all);
  check_read_only_memory(all);
  check_pageable_copies(all);
  check_kernels(all);
  check_peers(all);
  check_releases(all);
  check_streams_and_events(all);
  check_threads_without_a_context(all);
  check_a_destroyed_context(all, destroy_context);
}

}  // namespace pyxfer::facts
