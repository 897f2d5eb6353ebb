#include "trace/names.hpp"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace pyxfer::trace {
namespace {

struct c_free {
  // NOLINTNEXTLINE(cppcoreguidelines-no-malloc): the C++ ABI says so of what it demangles
  void operator()(char* text) const noexcept { std::free(text); }
};

/// The name itself where it is no mangled one.
std::string demangled(char const* name) {
  int status = 0;
  std::unique_ptr<char, c_free> const text{abi::__cxa_demangle(name, nullptr, nullptr, &status)};
  return status == 0 && text ? text.get() : name;
}

}  // namespace

name_table::name_table() : names_{""} { numbers_.emplace("", 0); }

std::uint32_t name_table::number_of(std::string_view name) {
  auto const found = numbers_.find(name);
  return found != numbers_.end() ? found->second : add(name, name);
}

std::uint32_t name_table::number_of_kernel(char const* mangled) {
  if (mangled == nullptr) { return 0; }
  auto const found = numbers_.find(std::string_view{mangled});
  return found != numbers_.end() ? found->second : add(mangled, demangled(mangled));
}

std::uint32_t name_table::add(std::string_view key, std::string_view shown) {
  if (too_many_ != 0) { return too_many_; }
  auto const added = key.size() + shown.size();
  auto const full = names_.size() + 1 >= most_names || bytes_ + added > most_bytes;
  auto const number = static_cast<std::uint32_t>(names_.size());
  names_.emplace_back(full ? "(too many names)" : shown);
  if (full) {
    too_many_ = number;
    return number;
  }
  numbers_.emplace(keys_.emplace_back(key), number);
  bytes_ += added;
  return number;
}

}  // namespace pyxfer::trace
