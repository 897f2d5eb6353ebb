#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace pyxfer::trace {

/// Names by number, each kept once, because what CUPTI points to is gone when its module is. Number
/// 0 is no name; when there is no more room, every new name is "(too many names)".
class name_table {
 public:
  static constexpr std::size_t most_names = std::size_t{1} << 16U;
  static constexpr std::size_t most_bytes = std::size_t{16} << 20U;

  name_table();

  /// May throw std::bad_alloc.
  [[nodiscard]] std::uint32_t number_of(std::string_view name);
  /// The same for a kernel, whose name is shown as its source has it.
  [[nodiscard]] std::uint32_t number_of_kernel(char const* mangled);

  [[nodiscard]] std::vector<std::string>& names() noexcept { return names_; }

 private:
  [[nodiscard]] std::uint32_t add(std::string_view key, std::string_view shown);

  std::vector<std::string> names_;
  std::deque<std::string> keys_;  // which stay where they are
  std::unordered_map<std::string_view, std::uint32_t> numbers_;
  std::size_t bytes_ = 0;
  std::uint32_t too_many_ = 0;
};

}  // namespace pyxfer::trace
