#include "trace/kinds.hpp"

#include <algorithm>
#include <stdexcept>

namespace pyxfer::trace {
namespace {

record_kind kind_of(std::string const& word) {
  auto const* const found = std::find(kind_words.begin(), kind_words.end(), word);
  if (found == kind_words.end()) {
    std::string known;
    for (auto const* const each : kind_words) {
      known += (known.empty() ? "" : ", ") + std::string{each};
    }
    throw std::invalid_argument("unknown kind \"" + word + "\"; known are " + known);
  }
  return static_cast<record_kind>(found - kind_words.begin() + 1);
}

}  // namespace

char const* word_of(record_kind kind) noexcept {
  return kind_words.at(static_cast<std::size_t>(kind) - 1);
}

std::set<record_kind> kinds_of(std::vector<std::string> const& words) {
  std::set<record_kind> kinds;
  for (auto const& word : words) { kinds.insert(kind_of(word)); }
  if (kinds.empty()) { throw std::invalid_argument("nothing to trace: name at least one kind"); }
  return kinds;
}

}  // namespace pyxfer::trace
