#include "convert/kernel_text.hpp"

#include "cuda/kernel_parts.hpp"

#include <algorithm>

namespace pyxfer {
namespace {

constexpr unsigned divided_axes = 5;

// Registers. %x and %y: an item's bits, in 32 or 64 bits. %r and %w: what a group loads, in words
// of 32 or 64 bits. %o: the words of 32 bits that it stores.

constexpr char const* begin = R"({
  .reg .u64 %from, %to, %id, %index, %more, %last, %wide;
  .reg .u64 %f<4>, %t<4>;
  .reg .b64 %w<8>, %y<4>;
  .reg .b32 %r<16>, %x<16>, %o<4>, %tmp, %quiet;
  .reg .b16 %half;
  .reg .u32 %block, %thread;
  .reg .pred %p<4>, %q, %z;
  ld.param.u64 %from, [source];
  ld.param.u64 %to, [destination];
  cvta.to.global.u64 %from, %from;
  cvta.to.global.u64 %to, %to;
  mov.u32 %block, %ntid.x;
  mov.u32 %thread, %ctaid.x;
  mul.wide.u32 %id, %thread, %block;
  mov.u32 %thread, %tid.x;
  cvt.u64.u32 %wide, %thread;
  add.u64 %id, %id, %wide;
  mov.u32 %thread, %nctaid.x;
  mul.wide.u32 %more, %thread, %block;
)";

// The marks stand for numbers: # of an item or group, $ of an axis or word, & and ~ of what the
// text says, < and > of bytes loaded and stored.

constexpr char const* convert_begin = R"(.reg .u64 %groups, %count, %ahead, %far;
  .reg .u64 %from_step, %to_step, %from_far, %to_far;
  ld.param.u64 %groups, [groups];
  ld.param.u64 %count, [count];
  mul.lo.u64 %wide, %id, <;
  add.u64 %f0, %from, %wide;
  mul.lo.u64 %wide, %id, >;
  add.u64 %t0, %to, %wide;
  mul.lo.u64 %from_step, %more, <;
  mul.lo.u64 %to_step, %more, >;
  mul.lo.u64 %from_far, %from_step, 4;
  mul.lo.u64 %to_far, %to_step, 4;
  mul.lo.u64 %ahead, %more, 3;
  mul.lo.u64 %far, %more, 4;
  mov.u64 %index, %id;
many:
  add.u64 %last, %index, %ahead;
  setp.ge.u64 %q, %last, %groups;
  @%q bra few;
)";

constexpr char const* many_end = R"(  add.u64 %index, %index, %far;
  add.u64 %f0, %f0, %from_far;
  add.u64 %t0, %t0, %to_far;
  bra many;
few:
  setp.ge.u64 %q, %index, %groups;
  @%q bra rest;
)";

constexpr char const* few_end = R"(  add.u64 %index, %index, %more;
  add.u64 %f0, %f0, %from_step;
  add.u64 %t0, %t0, %to_step;
  bra few;
rest:
)";

constexpr char const* rest_begin = R"(  add.u64 %index, %index, %id;
  setp.ge.u64 %q, %index, %count;
  @%q ret;
  mul.lo.u64 %wide, %index, <;
  add.u64 %f0, %from, %wide;
  mul.lo.u64 %wide, %index, >;
  add.u64 %t0, %to, %wide;
)";

constexpr char const* reorder_begin = R"(  .reg .u64 %end, %product;
  .reg .u32 %axes, %outer, %number<4>, %place, %left, %rest;
  ld.param.u64 %index, [first];
  ld.param.u64 %end, [end];
  ld.param.u32 %axes, [axes];
  ld.param.u32 %outer, [outer];
  add.u64 %index, %index, %id;
)";

constexpr char const* axis_begin = R"(  .reg .u32 %extent$, %stride$, %low$, %high$;
  ld.param.u32 %extent$, [extent$];
  ld.param.u32 %stride$, [stride$];
  ld.param.u64 %wide, [inverse$];
  cvt.u32.u64 %low$, %wide;
  shr.u64 %wide, %wide, 32;
  cvt.u32.u64 %high$, %wide;
)";

constexpr char const* reorder_load = R"(  setp.lt.u64 %p#, %index, %end;
  cvt.u32.u64 %number#, %index;
  mul.wide.u32 %wide, %number#, <;
  add.u64 %f#, %from, %wide;
  add.u64 %index, %index, %more;
)";

constexpr char const* divide = R"(  setp.eq.u32 %q, %axes, &;
  @%q bra placed#;
  mul.wide.u32 %wide, %left, %low$;
  shr.u64 %wide, %wide, 32;
  mul.wide.u32 %product, %left, %high$;
  add.u64 %product, %product, %wide;
  shr.u64 %product, %product, 32;
  mov.u32 %rest, %left;
  cvt.u32.u64 %left, %product;
  mul.lo.u32 %thread, %left, %extent$;
  sub.u32 %rest, %rest, %thread;
  mul.lo.u32 %rest, %rest, %stride$;
  add.u32 %place, %place, %rest;
)";

constexpr char const* placed = R"(placed#:
  mul.lo.u32 %left, %left, %outer;
  add.u32 %place, %place, %left;
  mul.wide.u32 %wide, %place, >;
  add.u64 %t#, %to, %wide;
)";

constexpr char const* to_bfloat16 = R"(  shr.u32 %tmp, %x#, 16;
  or.b32 %quiet, %tmp, 0x40;
  and.b32 %tmp, %tmp, 1;
  add.u32 %tmp, %tmp, 0x7fff;
  add.u32 %tmp, %tmp, %x#;
  shr.u32 %tmp, %tmp, 16;
  and.b32 %x#, %x#, 0x7fffffff;
  setp.gt.u32 %z, %x#, 0x7f800000;
  mov.u32 %x#, %tmp;
  @%z mov.u32 %x#, %quiet;
)";

bool is_float(item_kind kind) noexcept { return kind >= item_kind::f16; }
bool is_wide(item_kind kind) noexcept { return bytes_of(kind) == 8; }
bool is_small(item_kind kind) noexcept { return bytes_of(kind) < 4; }
bool is_signed(item_kind kind) noexcept {
  return kind == item_kind::i8 || kind == item_kind::i16 || kind == item_kind::i32 ||
         kind == item_kind::i64;
}

/// The type that an instruction has for an integer or float64 in its register.
std::string type_of(item_kind kind) {
  auto const bits = is_wide(kind) ? "64" : "32";
  return (is_float(kind) ? "f" : is_signed(kind) ? "s" : "u") + std::string{bits};
}

/// An item of a small format becomes 32 bits: those from `first` on of a word.
std::string extended(item_kind kind, std::string const& word, std::uint64_t first) {
  auto const bits = 8 * bytes_of(kind);
  auto const shr = is_signed(kind) ? "  shr.s32 %x#, " : "  shr.u32 %x#, ";
  if (first + bits == 32) { return shr + word + ", " + std::to_string(first) + ";\n"; }
  return "  shl.b32 %x#, " + word + ", " + std::to_string(32 - first - bits) + ";\n" + shr +
         "%x#, " + std::to_string(32 - bits) + ";\n";
}

std::string to_boolean(item_kind from) {
  auto const bits = 8 * bytes_of(from);
  auto const zero = is_wide(from) ? "  setp.ne.u64 %z, %y#, 0;\n" : "  setp.ne.u32 %z, %x#, 0;\n";
  std::string made;
  if (is_float(from)) {  // -0 has a bit too
    made = is_wide(from) ? "  and.b64 %y#, %y#, " : "  and.b32 %x#, %x#, ";
    made += std::to_string((std::uint64_t{1} << (bits - 1)) - 1) + ";\n";
  }
  return made + zero + "  mov.u32 %x#, 0;\n  @%z mov.u32 %x#, 1;\n";
}

std::string to_integer(item_kind from, item_kind to) {
  if (is_wide(from) == is_wide(to)) { return ""; }
  if (is_wide(from)) { return "  cvt.u32.u64 %x#, %y#;\n"; }
  return is_signed(from) ? "  cvt.s64.s32 %y#, %x#;\n" : "  cvt.u64.u32 %y#, %x#;\n";
}

std::string to_float(item_kind from, item_kind to) {
  constexpr auto half = "  cvt.u32.u16 %x#, %half;\n";
  if (from == item_kind::f64 && to == item_kind::f16) {
    return std::string{"  cvt.rn.f16.f64 %half, %y#;\n"} + half;
  }
  auto const source = is_wide(from) ? ", %y#;\n" : ", %x#;\n";
  if (!is_float(from) && to == item_kind::f64) {
    return "  cvt.rn.f64." + type_of(from) + " %y#" + source;
  }
  std::string made;
  if (from == item_kind::f16) { made = "  cvt.u16.u32 %half, %x#;\n  cvt.f32.f16 %x#, %half;\n"; }
  if (from == item_kind::bf16) { made = "  shl.b32 %x#, %x#, 16;\n"; }
  if (is_wide(from) || !is_float(from)) {
    made = "  cvt.rn.f32." + type_of(from) + " %x#" + source;
  }
  if (to == item_kind::f64) { made += "  cvt.f64.f32 %y#, %x#;\n"; }
  if (to == item_kind::f16) { made += std::string{"  cvt.rn.f16.f32 %half, %x#;\n"} + half; }
  return to == item_kind::bf16 ? made + to_bfloat16 : made;
}

std::string converted(item_kind from, item_kind to) {
  if (from == to) { return ""; }
  if (to == item_kind::boolean) { return to_boolean(from); }
  auto const truth = from == item_kind::boolean ? to_boolean(from) : "";
  return truth + (is_float(to) ? to_float(from, to) : to_integer(from, to));
}

/// "{%x4, %x5}" for two registers from 4 on.
std::string registers(std::string const& name, std::uint64_t first, std::uint64_t count) {
  auto made = name + std::to_string(first);
  for (auto i = first + 1; i < first + count; ++i) { made += ", " + name + std::to_string(i); }
  return count == 1 ? made : "{" + made + "}";
}

std::string type_in_memory(std::uint64_t bytes, std::uint64_t word_bytes) {
  auto const words = bytes / word_bytes;
  auto const many = words > 1 ? "v" + std::to_string(words) + "." : "";
  if (bytes < 4) { return bytes == 1 ? "u8" : "u16"; }
  return many + (word_bytes == 8 ? "b64" : "b32");
}

std::string load(std::string const& type, std::string const& into, std::string const& address) {
  return "ld.global.cg." + type + " " + into + ", [" + address + "];\n";
}

std::string store(std::string const& type, std::string const& value, std::string const& address) {
  return "st.global.cg." + type + " [" + address + "], " + value + ";\n";
}

/// The text of a pair's kernels.
class pair_text {
 public:
  pair_text(item_kind from, item_kind to)
      : from_{from}, to_{to}, group_{items_in_group(from, to)} {}

  [[nodiscard]] std::string convert() const {
    std::string made{
        ".visible .entry convert(.param .u64 source, .param .u64 destination,\n"
        "  .param .u64 groups, .param .u64 count)\n"};
    // Angle brackets also name registers, but only in `begin`.
    made += begin + with(with(std::string{"  "} + convert_begin, '<', group_ * bytes_of(from_)),
                         '>', group_ * bytes_of(to_));
    for (unsigned i = 1; i < loads_in_flight; ++i) {
      made += with(with("  add.u64 %f#, %f&, %from_step;\n  add.u64 %t#, %t&, %to_step;\n", '#', i),
                   '&', i - 1);
    }
    for (unsigned i = 0; i < loads_in_flight; ++i) { made += load_group(i); }
    for (unsigned i = 0; i < loads_in_flight; ++i) { made += store_group(i); }
    made += many_end + load_group(0) + store_group(0) + few_end;
    made += "  mul.lo.u64 %index, %groups, " + std::to_string(group_) + ";\n";
    made += with(with(rest_begin, '<', bytes_of(from_)), '>', bytes_of(to_));
    made += with("  " + load_one() + convert_one() + "  " + store_one(), '#', 0);
    return made + "  ret;\n}\n";
  }

  [[nodiscard]] std::string reorder() const {
    std::string made{
        ".visible .entry reorder(.param .u64 source, .param .u64 destination,\n"
        "  .param .u64 first, .param .u64 end, .param .u32 axes, .param .u32 outer"};
    std::string axes;
    for (unsigned axis = 0; axis < divided_axes; ++axis) {
      made +=
          with(",\n  .param .u32 extent$, .param .u32 stride$, .param .u64 inverse$", '$', axis);
      axes += with(axis_begin, '$', axis);
    }
    made += ")\n" + (begin + (reorder_begin + axes)) +
            "again:\n  setp.ge.u64 %q, %index, %end;\n  @%q ret;\n";
    for (unsigned i = 0; i < loads_in_flight; ++i) {
      made += with(with(reorder_load, '<', bytes_of(from_)) + "  @%p# " + load_one(), '#', i);
    }
    for (unsigned i = 0; i < loads_in_flight; ++i) { made += with(place_one(), '#', i); }
    return made + "  bra again;\n}\n";
  }

 private:
  [[nodiscard]] std::string load_one() const {
    return load(type_in_memory(bytes_of(from_), bytes_of(from_)), is_wide(from_) ? "%y#" : "%x#",
                "%f#");
  }
  [[nodiscard]] std::string convert_one() const {
    auto const extends = is_small(from_) && is_signed(from_);
    return (extends ? extended(from_, "%x#", 0) : "") + converted(from_, to_);
  }
  [[nodiscard]] std::string store_one() const {
    return store(type_in_memory(bytes_of(to_), bytes_of(to_)), is_wide(to_) ? "%y#" : "%x#", "%t#");
  }

  [[nodiscard]] std::string place_one() const {
    std::string made{"  mov.u32 %place, 0;\n  mov.u32 %left, %number#;\n"};
    for (unsigned axis = 0; axis < divided_axes; ++axis) {
      made += with(with(divide, '$', axis), '&', axis + 1);
    }
    return made + with(placed, '>', bytes_of(to_)) + convert_one() + "  @%p# " + store_one();
  }

  [[nodiscard]] std::uint64_t words_of(item_kind kind) const noexcept {
    auto const bytes = group_ * bytes_of(kind);
    return is_wide(kind) ? bytes / 8 : std::max<std::uint64_t>(bytes / 4, 1);
  }
  /// What group `number` of those in flight has loaded.
  [[nodiscard]] std::string loaded(unsigned number) const {
    auto const words = words_of(from_);
    return registers(is_wide(from_) ? "%w" : "%r", number * words, words);
  }
  [[nodiscard]] std::string group_type(item_kind kind) const {
    return type_in_memory(group_ * bytes_of(kind), is_wide(kind) ? 8 : 4);
  }
  [[nodiscard]] std::string load_group(unsigned number) const {
    return "  " + load(group_type(from_), loaded(number), "%f" + std::to_string(number));
  }

  [[nodiscard]] std::string store_group(unsigned number) const {
    auto const where = "%t" + std::to_string(number);
    if (from_ == to_) { return "  " + store(group_type(to_), loaded(number), where); }
    std::string made;
    for (std::uint64_t i = 0; i < group_; ++i) {
      made += with(taken(number, i) + converted(from_, to_), '#', i);
    }
    if (is_small(to_)) { made += packed(); }
    auto const name = is_wide(to_) ? "%y" : is_small(to_) ? "%o" : "%x";
    return made + "  " + store(group_type(to_), registers(name, 0, words_of(to_)), where);
  }

  /// Item `item` of a group gets into its register.
  [[nodiscard]] std::string taken(unsigned number, std::uint64_t item) const {
    auto const in_word = is_small(from_) ? 4 / bytes_of(from_) : 1;
    auto const word = std::to_string(number * words_of(from_) + item / in_word);
    if (is_wide(from_)) { return "  mov.b64 %y#, %w" + word + ";\n"; }
    if (!is_small(from_)) { return "  mov.b32 %x#, %r" + word + ";\n"; }
    return extended(from_, "%r" + word, item % in_word * 8 * bytes_of(from_));
  }

  /// The low bits of the items of a group get into words.
  [[nodiscard]] std::string packed() const {
    auto const bits = 8 * bytes_of(to_);
    auto const in_word = 32 / bits;
    std::string made;
    for (std::uint64_t i = 0; i < group_; ++i) {
      auto const first = i % in_word == 0;
      std::string each{first ? "  and.b32 %o$, %x#, &;\n"
                             : "  and.b32 %x#, %x#, &;\n  shl.b32 %x#, %x#, ~;\n"
                               "  or.b32 %o$, %o$, %x#;\n"};
      each = with(with(each, '#', i), '$', i / in_word);
      made += with(with(each, '&', (std::uint64_t{1} << bits) - 1), '~', i % in_word * bits);
    }
    return made;
  }

  item_kind from_;
  item_kind to_;
  std::uint64_t group_;
};

}  // namespace

std::uint64_t items_in_group(item_kind from, item_kind to) noexcept {
  return 16 / std::max(bytes_of(from), bytes_of(to));
}

std::string convert_kernel_text(item_kind from, item_kind to) {
  pair_text const text{from, to};
  return kernel_head + text.convert() + text.reorder();
}

}  // namespace pyxfer
