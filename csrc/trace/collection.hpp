#pragma once

#include "trace/library.hpp"
#include "trace/parse.hpp"
#include "trace/receiver.hpp"

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace pyxfer::trace {

/// A running collection, of which a process can have one: a subscription to CUPTI, the kinds of
/// records that are enabled, and the buffers that are read. No callback of the subscription is
/// enabled: it is held so that another profiler is found before pyxfer changes any of its settings.
/// Thread ids are those of the system until the end. Their previous type is restored, because
/// another profiler may use it.
class collection {
 public:
  /// Throws `refusal` if the library refuses the subscription, copies, or all of `kinds`, and
  /// `trace_unavailable_error` if pyxfer is already tracing in this process. Nothing is then left
  /// enabled.
  collection(library const& from, std::set<record_kind> const& kinds,
             std::shared_ptr<gathering> into);
  ~collection();
  collection(collection const&) = delete;
  collection& operator=(collection const&) = delete;
  collection(collection&&) = delete;
  collection& operator=(collection&&) = delete;

  /// Makes the library hand over everything that was recorded.
  void flush();

  /// Disables everything, flushes and unsubscribes; throws the first failure after all were tried.
  void close();

  /// The kinds that the library refused, by their words, with its reasons.
  [[nodiscard]] std::map<std::string, std::string> const& refused() const noexcept {
    return refused_;
  }

 private:
  void subscribe();
  void unsubscribe(cupti::subscriber held);
  void receive(std::uint32_t version, std::shared_ptr<gathering> into);
  void enable_all(std::set<record_kind> const& kinds);
  void enable(record_kind kind);
  /// Throws `refusal`.
  void enable(cupti::activity_kind kind);
  void enable_calls(cupti::domain of);
  void disable_all();
  [[nodiscard]] std::size_t take_dropped() const;

  cupti::functions call_;
  cupti::subscriber subscriber_ = nullptr;
  std::uint32_t thread_ids_before_ = 0;
  std::shared_ptr<intake const> taking_;
  std::vector<cupti::activity_kind> kinds_;
  std::map<std::string, std::string> refused_;
};

}  // namespace pyxfer::trace
