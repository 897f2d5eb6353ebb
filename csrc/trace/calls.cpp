#include "trace/calls.hpp"

#include <algorithm>
#include <array>

namespace pyxfer::trace {
namespace {

/// Ids are without gaps; this only ends a library that would answer for ever.
constexpr std::uint32_t most_callbacks = 8192;

constexpr std::array<std::string_view, 20> beginnings{
    "cudaMemcpy",         "cuMemcpy",
    "cudaMemset",         "cuMemset",
    "cudaMalloc",         "cuMemAlloc",
    "cudaFree",           "cuMemFree",
    "cudaHostAlloc",      "cuMemHostAlloc",
    "cudaHostRegister",   "cuMemHostRegister",
    "cudaHostUnregister", "cuMemHostUnregister",
    "cuMemCreate",        "cuMemRelease",
    "cudaLaunchHostFunc", "cuLaunchHostFunc",
    "cudaGraphLaunch",    "cuGraphLaunch",
};

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

/// Without a last "_v2" or "_v12080".
std::string_view without_version(std::string_view name) {
  auto const digits = name.find_last_not_of("0123456789");
  if (digits == std::string_view::npos || digits + 1 == name.size()) { return name; }
  auto const head = name.substr(0, digits + 1);
  return ends_with(head, "_v") ? head.substr(0, head.size() - 2) : name;
}

std::string_view without_default_stream(std::string_view name) {
  auto const marked = ends_with(name, "_ptsz") || ends_with(name, "_ptds");
  return marked ? name.substr(0, name.size() - 5) : name;
}

}  // namespace

std::string_view plain_name(std::string_view name) noexcept {
  // The runtime's have their version last, the driver's their stream.
  return without_version(without_default_stream(without_version(name)));
}

bool matters(std::string_view plain) noexcept {
  auto const begins = [&](std::string_view each) { return plain.rfind(each, 0) == 0; };
  return std::any_of(beginnings.begin(), beginnings.end(), begins) ||
         plain.find("Synchronize") != std::string_view::npos;
}

call_names::call_names(cupti::functions const& call, cupti::domain of) {
  char const* name = nullptr;
  for (std::uint32_t id = 0; id < most_callbacks; ++id) {
    if (call.get_callback_name(of, id, &name) != cupti::result::success || name == nullptr) {
      break;
    }
    auto const plain = plain_name(name);
    names_.emplace_back(matters(plain) ? plain : std::string_view{});
  }
}

std::string const& call_names::name_of(std::uint32_t callback) const noexcept {
  static std::string const none;
  return callback < names_.size() ? names_[callback] : none;
}

std::vector<std::uint32_t> call_names::that_do_not_matter() const {
  std::vector<std::uint32_t> ids;
  for (std::uint32_t id = 1; id < names_.size(); ++id) {  // 0 is no call
    if (names_[id].empty()) { ids.push_back(id); }
  }
  return ids;
}

}  // namespace pyxfer::trace
