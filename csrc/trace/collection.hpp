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

/// The kinds of records that are enabled in a library, until it is closed.
class enabling {
 public:
  /// Throws `refusal` if the library refuses copies, or refuses all of `kinds`.
  enabling(cupti::functions const& call, parser const& reader, std::set<record_kind> const& kinds);
  ~enabling();
  enabling(enabling const&) = delete;
  enabling& operator=(enabling const&) = delete;
  enabling(enabling&&) = delete;
  enabling& operator=(enabling&&) = delete;

  /// Disables all kinds; throws the first failure after all were tried.
  void close();

  /// The kinds that the library refused, by their words, with its reasons.
  [[nodiscard]] std::map<std::string, std::string> const& refused() const noexcept {
    return refused_;
  }

 private:
  void enable(record_kind kind, parser const& reader);
  /// Throws `refusal`.
  void enable(cupti::activity_kind kind);
  void enable_calls(cupti::domain of, parser const& reader);

  cupti::functions call_;
  std::vector<cupti::activity_kind> kinds_;
  std::map<std::string, std::string> refused_;
};

/// A running collection: the subscription, the enabled kinds, and the buffers that are read.
class collection {
 public:
  /// Throws the errors of `subscription` and `enabling`. Nothing is then left enabled.
  collection(library const& from, std::set<record_kind> const& kinds,
             std::shared_ptr<gathering> into);

  /// Makes the library hand over everything that was recorded.
  void flush();

  /// Disables everything, flushes and unsubscribes; throws the first failure after all were tried.
  void close();

  [[nodiscard]] std::map<std::string, std::string> const& refused() const noexcept {
    return enabled_.refused();
  }

 private:
  [[nodiscard]] std::shared_ptr<intake const> receive(std::uint32_t version,
                                                      std::shared_ptr<gathering> into) const;
  [[nodiscard]] std::size_t take_dropped() const;

  cupti::functions call_;
  // In this order, because each needs the one before.
  subscription subscribed_;
  std::shared_ptr<intake const> taking_;
  enabling enabled_;
};

}  // namespace pyxfer::trace
