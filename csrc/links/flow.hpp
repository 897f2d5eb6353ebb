#pragma once

#include "cuda/memory.hpp"
#include "cuda/stream.hpp"
#include "links/kernels.hpp"
#include "links/user_count.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace pyxfer {

/// What does the work of a flow: a copy engine, a kernel that copies, one that follows pointers, or
/// one that computes.
enum class flow_engine { ce, sm, chase, compute };

[[nodiscard]] flow_engine flow_engine_of(std::string const& word);

/// One copy, chase or computation that is repeated. A side's device is -1 if it is host memory.
struct flow_plan {
  int device;  ///< whose stream it runs on
  flow_engine engine;
  std::uintptr_t destination;  ///< not used by a chase; of a computation: its results
  std::uintptr_t source;       ///< of a chase: its first pointer; not used by a computation
  std::size_t bytes;
  std::size_t depth;        ///< how many items are queued at a time
  double pace_bytes_per_s;  ///< 0: as fast as it goes
  int source_device;
  int destination_device;
  std::uint32_t hops;        ///< of a chase
  int multiprocessor;        ///< of a chase; or flow::any, flow::each_in_turn
  std::uint32_t rounds = 0;  ///< of a computation
};

/// A stream of equal items, its events, and the words of page-locked memory that its kernels write.
class flow {
 public:
  static constexpr int host = -1;
  // Instead of a multiprocessor.
  static constexpr int any = -1;
  static constexpr int each_in_turn = -2;
  /// A stream holds about 1,000 commands, of which an item needs three.
  static constexpr std::size_t most_depth = 256;

  /// `with` has to live as long; it may be null if the engine is `ce`. Throws std::invalid_argument
  /// if the plan or its memory is invalid.
  flow(flow_plan const& plan, kernels* with);
  ~flow();
  flow(flow const&) = delete;
  flow& operator=(flow const&) = delete;
  flow(flow&&) = delete;
  flow& operator=(flow&&) = delete;

  [[nodiscard]] flow_plan const& plan() const noexcept { return plan_; }
  [[nodiscard]] stream_view on() const noexcept { return stream_.view(); }
  [[nodiscard]] kernels* with() const noexcept { return kernels_; }
  [[nodiscard]] user_count& users() noexcept { return users_; }
  [[nodiscard]] bool closed() const noexcept { return users_.closed(); }

  // The rest is for a run. The primary context of the device is current.

  /// Queues an item. Its place must be free: that of an earlier item which has ended. `turn` counts
  /// the items of the run.
  void issue(std::size_t place, std::size_t turn) const;
  [[nodiscard]] event& begin_mark(std::size_t place) { return begins_.at(place); }
  [[nodiscard]] event& end_mark(std::size_t place) { return ends_.at(place); }
  [[nodiscard]] chase_result& result(std::size_t place) const;
  /// The words of a gate. The flow has kernels.
  [[nodiscard]] std::atomic<std::uint32_t>& gate_flag() const;
  [[nodiscard]] std::atomic<std::uint32_t>& gate_late() const;

  /// Keeps the words of `other` too, because the stream of this flow is held by them.
  void share_words(flow const& other) { held_by_ = other.words_; }
  /// Notes that items are under way although the run has ended.
  void mark_stuck() noexcept { stuck_ = true; }

  /// Releases everything. Throws std::logic_error while a run uses it. If its items are still under
  /// way after a run that has failed, it abandons everything, and throws timeout_error.
  void close();
  /// Leaves it to the end of the process, because the device does not respond.
  void abandon() noexcept;

 private:
  void check() const;
  [[nodiscard]] int multiprocessor_of(std::size_t turn) const;
  void find_addresses();
  [[nodiscard]] bool is_stuck();

  flow_plan plan_;
  kernels* kernels_;
  stream stream_;
  std::vector<event> begins_;
  std::vector<event> ends_;
  std::shared_ptr<host_buffer> words_;    ///< null without kernels
  std::shared_ptr<host_buffer> held_by_;  ///< those of the flow with the flag of the last gate
  bool stuck_{false};
  user_count users_;
};

}  // namespace pyxfer
