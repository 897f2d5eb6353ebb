#pragma once

#include "trace/cupti.hpp"
#include "trace/cupti_records.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace pyxfer::trace {

/// Maps pages for the tracer. Memory from the heap would change how often the heap of the traced
/// program is trimmed and faulted in again, even after the tracer has ended. The pages use no
/// memory until they are touched, or are touched at once if `touched`. Returns null if there is not
/// enough memory.
[[nodiscard]] void* map_pages(std::size_t bytes, bool touched) noexcept;
void unmap_pages(void* pages, std::size_t bytes) noexcept;

/// Throws std::bad_alloc.
[[noreturn]] void throw_no_room();

/// An allocator for containers, which uses `map_pages`.
template <typename T>
struct mapped_allocator {
  using value_type = T;

  mapped_allocator() noexcept = default;
  template <typename U>
  mapped_allocator(mapped_allocator<U> const& /*other*/) noexcept {}  // NOLINT: as allocators are

  [[nodiscard]] T* allocate(std::size_t count) {
    auto* const found = map_pages(count * sizeof(T), false);
    if (found == nullptr) { throw_no_room(); }
    return static_cast<T*>(found);
  }
  void deallocate(T* pages, std::size_t count) noexcept { unmap_pages(pages, count * sizeof(T)); }

  friend bool operator==(mapped_allocator const& /*a*/, mapped_allocator const& /*b*/) noexcept {
    return true;
  }
  friend bool operator!=(mapped_allocator const& /*a*/, mapped_allocator const& /*b*/) noexcept {
    return false;
  }
};

template <typename T>
using mapped_vector = std::vector<T, mapped_allocator<T>>;

// pyxfer/_trace/records.py has the same numbers.

enum class record_kind : std::uint8_t { copy = 1, set, kernel, call, allocation, mark, overhead };

enum class copy_way : std::uint8_t { other, h2d, d2h, d2d, h2h, p2p };

enum class memory_side : std::uint8_t { unknown, pageable, pinned, device, array, managed };

namespace flag {

inline constexpr std::uint32_t asynchronous = 1;
inline constexpr std::uint32_t runtime = 2;
inline constexpr std::uint32_t freed = 4;
inline constexpr std::uint32_t begin = 8;
inline constexpr std::uint32_t end = 16;

}  // namespace flag

/// One row of the table that Python reads. Times are the activity clock's until they are converted,
/// and 0 if they are not known. A set and an allocation have their memory in `target`.
struct record {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  std::uint64_t nbytes = 0;
  std::uint32_t correlation = 0;
  std::uint32_t stream = 0;
  std::uint32_t context = 0;
  std::uint32_t device = 0;
  std::uint32_t thread = 0;
  std::uint32_t name = 0;
  std::uint32_t copies = 0;
  std::int32_t result = 0;
  record_kind kind = record_kind::copy;
  copy_way way{};
  memory_side source{};
  memory_side target{};
  std::uint32_t flags = 0;
};

static_assert(sizeof(record) == 64, "csrc/bind/trace.cpp describes rows of 64 bytes to NumPy");

using record_table = mapped_vector<record>;

/// The words of the kinds, in the order of `record_kind`.
inline constexpr std::array kind_words{"copies",      "sets",  "kernels", "calls",
                                       "allocations", "marks", "overhead"};

inline constexpr std::size_t kinds_of_records = kind_words.size();

[[nodiscard]] char const* word_of(record_kind kind) noexcept;

/// Throws std::invalid_argument for an unknown word, and for an empty list.
[[nodiscard]] std::set<record_kind> kinds_of(std::vector<std::string> const& words);

/// Stores names once each, and numbers them. They are copied, because the names that CUPTI points
/// to are unloaded with their module. Number 0 means "no name". When the table is full, every new
/// name becomes "(too many names)".
class name_table {
 public:
  static constexpr std::size_t most_names = std::size_t{1} << 16U;
  static constexpr std::size_t most_bytes = std::size_t{16} << 20U;

  name_table();

  /// May throw std::bad_alloc.
  [[nodiscard]] std::uint32_t number_of(std::string_view name);
  /// The same for a kernel, whose name is demangled.
  [[nodiscard]] std::uint32_t number_of_kernel(char const* mangled);

  [[nodiscard]] std::vector<std::string>& names() noexcept { return names_; }

 private:
  [[nodiscard]] std::uint32_t add(std::string_view key, std::string_view shown);

  std::vector<std::string> names_;
  std::deque<std::string> keys_;  // a deque, because numbers_ refers to its elements
  std::unordered_map<std::string_view, std::uint32_t> numbers_;
  std::size_t bytes_ = 0;
  std::uint32_t too_many_ = 0;
};

/// Removes the suffixes for version and default stream: "cudaMemcpyAsync_ptsz_v7000" becomes
/// "cudaMemcpyAsync".
[[nodiscard]] std::string_view plain_name(std::string_view name) noexcept;

/// Whether calls of this plain name are recorded: those that move bytes, wait or allocate, because
/// they explain the time of copies. Launches of graphs are recorded too, because a graph's copies
/// are joined with them.
[[nodiscard]] bool is_wanted(std::string_view plain) noexcept;

/// The names of one domain's calls by callback id. All versions of CUPTI use the same ids, but not
/// all have every call.
class call_names {
 public:
  /// It stays empty if the library does not report names, which can happen without a driver.
  call_names(cupti::functions const& call, cupti::domain of);

  /// Empty for a call that is not wanted or not known.
  [[nodiscard]] std::string const& name_of(std::uint32_t callback) const noexcept;

  /// The callback ids of the known calls that are not wanted.
  [[nodiscard]] std::vector<std::uint32_t> unwanted_ids() const;

 private:
  std::vector<std::string> names_;
};

/// Converts CUPTI's records to ours, except for their times.
class parser {
 public:
  parser(std::uint32_t version, cupti::functions const& call)
      : counts_copies_{version >= cupti::version_with_copy_count},
        runtime_{call, cupti::domain::runtime},
        driver_{call, cupti::domain::driver} {}

  /// Returns nothing for other kinds, and for calls that are not wanted. May throw std::bad_alloc
  /// for a name.
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

/// Our kind for one of CUPTI's; nothing for a kind that is not used.
[[nodiscard]] std::optional<record_kind> kind_of(cupti::activity_kind kind) noexcept;

}  // namespace pyxfer::trace
