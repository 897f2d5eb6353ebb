#pragma once

#include "trace/cupti.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace pyxfer::trace {

/// "cudaMemcpyAsync" of "cudaMemcpyAsync_ptsz_v7000": without version and default stream.
[[nodiscard]] std::string_view plain_name(std::string_view name) noexcept;

/// Whether a call moves bytes, waits, or allocates: what a copy's story is told with. A graph's
/// launch is among them, because the copies of the graph are joined with it.
[[nodiscard]] bool matters(std::string_view plain) noexcept;

/// The calls of one domain by their callback id, which the versions of CUPTI number alike but do
/// not all have.
class call_names {
 public:
  /// None where the library does not tell them, as one without a driver may not.
  call_names(cupti::functions const& call, cupti::domain of);

  /// Empty for a call that does not matter, or is not known.
  [[nodiscard]] std::string const& name_of(std::uint32_t callback) const noexcept;

  /// The callback ids of the others.
  [[nodiscard]] std::vector<std::uint32_t> that_do_not_matter() const;

 private:
  std::vector<std::string> names_;
};

}  // namespace pyxfer::trace
