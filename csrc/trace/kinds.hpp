#pragma once

#include "trace/record.hpp"

#include <array>
#include <set>
#include <string>
#include <vector>

namespace pyxfer::trace {

/// The words of what can be recorded, in the order of `record_kind`.
inline constexpr std::array kind_words{"copies",      "sets",  "kernels", "calls",
                                       "allocations", "marks", "overhead"};

inline constexpr std::size_t kinds_of_records = kind_words.size();

[[nodiscard]] char const* word_of(record_kind kind) noexcept;

/// Throws std::invalid_argument for a word that is none, and for none at all.
[[nodiscard]] std::set<record_kind> kinds_of(std::vector<std::string> const& words);

}  // namespace pyxfer::trace
