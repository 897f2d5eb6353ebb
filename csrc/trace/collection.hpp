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

/// What is enabled in a library, until it is closed.
class enabling {
 public:
  /// Throws `refusal` where copies are asked for and cannot be had, or nothing at all can.
  enabling(cupti::functions const& call, parser const& reader, std::set<record_kind> const& kinds);
  ~enabling();
  enabling(enabling const&) = delete;
  enabling& operator=(enabling const&) = delete;
  enabling(enabling&&) = delete;
  enabling& operator=(enabling&&) = delete;

  /// Disables everything; throws the first failure when all has been tried.
  void close();

  /// The words of kinds that the library refused, with its reason.
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

/// A library that is collecting: subscribed to, its kinds enabled, its buffers read.
class collection {
 public:
  /// Throws as its parts do; nothing is then left of it.
  collection(library const& from, std::set<record_kind> const& kinds,
             std::shared_ptr<gathering> into);

  /// Has everything handed over that was recorded.
  void flush();

  /// Ends it; nothing costs after this. Everything is tried; throws the first failure.
  void close();

  [[nodiscard]] std::map<std::string, std::string> const& refused() const noexcept {
    return enabled_.refused();
  }

 private:
  [[nodiscard]] std::shared_ptr<intake const> receive(std::uint32_t version,
                                                      std::shared_ptr<gathering> into) const;
  [[nodiscard]] std::size_t take_dropped() const;

  cupti::functions call_;
  // In the order in which one needs the other.
  subscription subscribed_;
  std::shared_ptr<intake const> taking_;
  enabling enabled_;
};

}  // namespace pyxfer::trace
