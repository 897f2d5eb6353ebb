#pragma once

namespace pyxfer::tests {

/// While it exists, every 64th `operator new` of the process sleeps for 50 us, to simulate a page
/// fault or a contended allocator.
class slow_allocations {
 public:
  slow_allocations();
  ~slow_allocations();
  slow_allocations(slow_allocations const&) = delete;
  slow_allocations& operator=(slow_allocations const&) = delete;
  slow_allocations(slow_allocations&&) = delete;
  slow_allocations& operator=(slow_allocations&&) = delete;
};

}  // namespace pyxfer::tests
