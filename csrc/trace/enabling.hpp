#pragma once

#include "trace/kinds.hpp"
#include "trace/parse.hpp"

#include <functional>
#include <map>
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

}  // namespace pyxfer::trace
