#pragma once

#include "trace/enabling.hpp"
#include "trace/library.hpp"
#include "trace/receiver.hpp"
#include "trace/subscription.hpp"

#include <map>
#include <memory>
#include <set>
#include <string>

namespace pyxfer::trace {

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
