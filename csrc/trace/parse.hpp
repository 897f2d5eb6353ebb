#pragma once

#include "trace/calls.hpp"
#include "trace/cupti_records.hpp"
#include "trace/names.hpp"
#include "trace/record.hpp"

#include <optional>

namespace pyxfer::trace {

/// Turns CUPTI's records into ours, times left as they are.
class parser {
 public:
  parser(std::uint32_t version, cupti::functions const& call)
      : counts_copies_{version >= cupti::version_with_copy_count},
        runtime_{call, cupti::domain::runtime},
        driver_{call, cupti::domain::driver} {}

  /// Nothing for a kind, or a call, that nobody asked for. May throw std::bad_alloc for a name.
  [[nodiscard]] std::optional<record> parse(cupti::activity const& raw, name_table& names) const;

  [[nodiscard]] call_names const& calls_of(cupti::domain of) const noexcept {
    return of == cupti::domain::runtime ? runtime_ : driver_;
  }

 private:
  [[nodiscard]] std::optional<record> parse_call(cupti::activity const& raw,
                                                 name_table& names) const;
  [[nodiscard]] record parse_copy(cupti::activity const& raw) const;

  bool counts_copies_;
  call_names runtime_;
  call_names driver_;
};

/// Ours of a kind of CUPTI's; nothing for one that is not used here.
[[nodiscard]] std::optional<record_kind> kind_of(cupti::activity_kind kind) noexcept;

}  // namespace pyxfer::trace
