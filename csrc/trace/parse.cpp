#include "trace/parse.hpp"

#include <cxxabi.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string_view>

namespace pyxfer::trace {

void* map_pages(std::size_t bytes, bool touched) noexcept {
  auto const flags = MAP_PRIVATE | MAP_ANONYMOUS | (touched ? MAP_POPULATE : MAP_NORESERVE);
  auto* const found = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  return found == MAP_FAILED ? nullptr : found;
}

void unmap_pages(void* pages, std::size_t bytes) noexcept { ::munmap(pages, bytes); }

void throw_no_room() { throw std::bad_alloc{}; }

namespace {

record_kind kind_of(std::string const& word) {
  auto const* const found = std::find(kind_words.begin(), kind_words.end(), word);
  if (found == kind_words.end()) {
    std::string known;
    for (auto const* const known_word : kind_words) {
      known += (known.empty() ? "" : ", ") + std::string{known_word};
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

namespace {

struct c_free {
  // NOLINTNEXTLINE(cppcoreguidelines-no-malloc): the C++ ABI requires it for demangled names
  void operator()(char* text) const noexcept { std::free(text); }
};

/// Returns the name itself if it is not a mangled one.
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

namespace {

/// Callback ids have no gaps. The limit only guards against a library that returns names forever.
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

/// Removes a suffix such as "_v2" or "_v12080".
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
  // In the runtime's names the version comes last, in the driver's names the stream.
  return without_version(without_default_stream(without_version(name)));
}

bool is_wanted(std::string_view plain) noexcept {
  auto const begins = [&](std::string_view beginning) { return plain.rfind(beginning, 0) == 0; };
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
    names_.emplace_back(is_wanted(plain) ? plain : std::string_view{});
  }
}

std::string const& call_names::name_of(std::uint32_t callback) const noexcept {
  static std::string const none;
  return callback < names_.size() ? names_[callback] : none;
}

std::vector<std::uint32_t> call_names::unwanted_ids() const {
  std::vector<std::uint32_t> ids;
  for (std::uint32_t id = 1; id < names_.size(); ++id) {  // id 0 is invalid
    if (names_[id].empty()) { ids.push_back(id); }
  }
  return ids;
}

namespace {

/// Indexed by CUpti_ActivityMemcpyKind. A CUDA array counts as device memory here; `source` and
/// `target` of the record distinguish them.
constexpr std::array ways{copy_way::other, copy_way::h2d, copy_way::d2h, copy_way::h2d,
                          copy_way::d2h,   copy_way::d2d, copy_way::d2d, copy_way::d2d,
                          copy_way::d2d,   copy_way::h2h, copy_way::p2p};

/// Indexed by CUpti_ActivityMemoryKind; the last two are statically allocated.
constexpr std::array sides{memory_side::unknown, memory_side::pageable, memory_side::pinned,
                           memory_side::device,  memory_side::array,    memory_side::managed,
                           memory_side::device,  memory_side::managed};

/// Indexed by CUpti_ActivityOverheadKind >> 16: the library's own overheads begin at 1 << 16.
constexpr std::array<std::string_view, 9> overheads{"unknown",
                                                    "buffer flush",
                                                    "instrumentation",
                                                    "resources",
                                                    "module loading",
                                                    "function loading",
                                                    "full command buffer",
                                                    "buffer request",
                                                    "managed memory setup"};

template <typename Value, std::size_t Size>
Value at(std::array<Value, Size> const& known, std::size_t number) {
  return number < Size ? known[number] : known[0];
}

std::string_view overhead_name(std::uint32_t kind) {
  constexpr std::uint32_t compiler = 1;
  if (kind == compiler) { return "compiler"; }
  return at(overheads, kind >> 16U);
}

template <typename Raw>
Raw const& as(cupti::activity const& raw) {
  return reinterpret_cast<Raw const&>(raw);
}

/// Fills in the fields that copies, sets and kernels share.
template <typename Raw>
record on_stream(record_kind kind, Raw const& raw) {
  record made;
  made.kind = kind;
  made.start_ns = static_cast<std::int64_t>(raw.start);
  made.end_ns = static_cast<std::int64_t>(raw.end);
  made.correlation = raw.correlation;
  made.stream = raw.stream;
  made.context = raw.context;
  made.device = raw.device;
  return made;
}

template <typename Raw>
record moved(Raw const& raw) {
  auto made = on_stream(record_kind::copy, raw);
  made.nbytes = raw.bytes;
  made.way = at(ways, raw.way);
  made.source = at(sides, raw.source);
  made.target = at(sides, raw.target);
  made.flags = (raw.flags & cupti::asynchronous) != 0 ? flag::asynchronous : 0;
  made.copies = 1;
  return made;
}

record parse_set(cupti::set_activity const& raw) {
  auto made = on_stream(record_kind::set, raw);
  made.nbytes = raw.bytes;
  made.target = at(sides, raw.memory);
  made.flags = (raw.flags & cupti::asynchronous) != 0 ? flag::asynchronous : 0;
  return made;
}

record parse_kernel(cupti::kernel_activity const& raw, name_table& names) {
  auto made = on_stream(record_kind::kernel, raw);
  made.name = names.number_of_kernel(raw.name);
  return made;
}

record parse_memory(cupti::memory_activity const& raw) {
  record made;
  made.kind = record_kind::allocation;
  made.start_ns = static_cast<std::int64_t>(raw.timestamp);
  made.end_ns = made.start_ns;
  made.nbytes = raw.bytes;
  made.correlation = raw.correlation;
  made.stream = raw.stream;
  made.context = raw.context;
  made.device = raw.device;
  made.target = at(sides, raw.memory);
  made.flags = raw.operation == cupti::memory_released ? flag::freed : 0;
  return made;
}

/// An instant is recorded as the begin and the end of a range.
std::uint32_t mark_flags(std::uint32_t flags) {
  auto const instant = (flags & cupti::marker_instant) != 0;
  auto const begins = instant || (flags & cupti::marker_begin) != 0;
  auto const ends = instant || (flags & cupti::marker_end) != 0;
  return (begins ? flag::begin : 0) | (ends ? flag::end : 0);
}

template <typename Raw>
std::uint32_t thread_of(Raw const& raw) {
  return raw.object_kind == cupti::object_is_thread ? raw.object.thread : 0;
}

record parse_marker(cupti::marker_activity const& raw, name_table& names) {
  record made;
  made.kind = record_kind::mark;
  made.start_ns = static_cast<std::int64_t>(raw.timestamp);
  made.end_ns = made.start_ns;
  made.correlation = raw.id;
  made.thread = thread_of(raw);
  made.name = raw.name == nullptr ? 0 : names.number_of(raw.name);
  made.flags = mark_flags(raw.flags);
  return made;
}

record parse_overhead(cupti::overhead_activity const& raw, name_table& names) {
  record made;
  made.kind = record_kind::overhead;
  made.start_ns = static_cast<std::int64_t>(raw.start);
  made.end_ns = static_cast<std::int64_t>(raw.end);
  made.thread = thread_of(raw);
  made.name = names.number_of(overhead_name(raw.overhead));
  return made;
}

}  // namespace

std::optional<record_kind> kind_of(cupti::activity_kind kind) noexcept {
  switch (kind) {
    case cupti::activity_kind::copy:
    case cupti::activity_kind::peer_copy: return record_kind::copy;
    case cupti::activity_kind::set: return record_kind::set;
    case cupti::activity_kind::kernel: return record_kind::kernel;
    case cupti::activity_kind::runtime_call:
    case cupti::activity_kind::driver_call: return record_kind::call;
    case cupti::activity_kind::memory: return record_kind::allocation;
    case cupti::activity_kind::marker: return record_kind::mark;
    case cupti::activity_kind::overhead: return record_kind::overhead;
    case cupti::activity_kind::invalid: break;
  }
  return std::nullopt;
}

record parser::parse_copy(cupti::activity const& raw) const {
  auto const& copy = as<cupti::copy_activity>(raw);
  auto made = moved(copy);
  if (counts_copies_ && copy.copies > 1) { made.copies = static_cast<std::uint32_t>(copy.copies); }
  return made;
}

std::optional<record> parser::parse_call(cupti::activity const& raw, name_table& names) const {
  auto const& call = as<cupti::call_activity>(raw);
  auto const of_runtime = raw.kind == cupti::activity_kind::runtime_call;
  auto const& name = (of_runtime ? runtime_ : driver_).name_of(call.callback);
  if (name.empty()) { return std::nullopt; }
  record made;
  made.kind = record_kind::call;
  made.start_ns = static_cast<std::int64_t>(call.start);
  made.end_ns = static_cast<std::int64_t>(call.end);
  made.correlation = call.correlation;
  made.thread = call.thread;
  made.name = names.number_of(name);
  made.result = static_cast<std::int32_t>(call.result);
  made.flags = of_runtime ? flag::runtime : 0;
  return made;
}

std::optional<record> parser::parse(cupti::activity const& raw, name_table& names) const {
  switch (raw.kind) {
    case cupti::activity_kind::copy: return parse_copy(raw);
    case cupti::activity_kind::peer_copy: return moved(as<cupti::peer_copy_activity>(raw));
    case cupti::activity_kind::set: return parse_set(as<cupti::set_activity>(raw));
    case cupti::activity_kind::kernel: return parse_kernel(as<cupti::kernel_activity>(raw), names);
    case cupti::activity_kind::runtime_call:
    case cupti::activity_kind::driver_call: return parse_call(raw, names);
    case cupti::activity_kind::memory: return parse_memory(as<cupti::memory_activity>(raw));
    case cupti::activity_kind::marker: return parse_marker(as<cupti::marker_activity>(raw), names);
    case cupti::activity_kind::overhead:
      return parse_overhead(as<cupti::overhead_activity>(raw), names);
    case cupti::activity_kind::invalid: break;
  }
  return std::nullopt;
}

}  // namespace pyxfer::trace
