#include "blocks/kernel_text.hpp"

#include "cuda/kernel_parts.hpp"

namespace pyxfer {
namespace {

constexpr int words_in_flight = 4;

constexpr char const* parameters =
    R"(.param .u64 source, .param .u64 source_stride, .param .u64 source_blocks,
  .param .u64 destination, .param .u64 destination_stride, .param .u64 destination_blocks,
  .param .u32 count, .param .u32 words, .param .u32 places,
  .param .u64 source_lines, .param .u64 destination_lines, .param .u64 wrong, )";

constexpr char const* begin = R"()
{
  .reg .u64 %source, %source_stride, %source_blocks, %to, %to_stride, %to_blocks, %wrong;
  .reg .u64 %source_lines, %to_lines, %list, %list_to, %at, %s, %d, %in;
  .reg .u64 %f<8>, %t<8>;
  .reg .u32 %block, %place, %count, %words, %places, %more_blocks, %more_places, %word, %s32, %d32;
  .reg .b32 %x<32>;
  .reg .pred %p<8>, %q, %u;
  ld.param.u64 %source, [source];
  ld.param.u64 %source_stride, [source_stride];
  ld.param.u64 %source_blocks, [source_blocks];
  ld.param.u64 %to, [destination];
  ld.param.u64 %to_stride, [destination_stride];
  ld.param.u64 %to_blocks, [destination_blocks];
  ld.param.u32 %count, [count];
  ld.param.u32 %words, [words];
  ld.param.u32 %places, [places];
  ld.param.u64 %source_lines, [source_lines];
  ld.param.u64 %to_lines, [destination_lines];
  ld.param.u64 %wrong, [wrong];
  cvta.to.global.u64 %source, %source;
  cvta.to.global.u64 %to, %to;
  cvta.to.global.u64 %wrong, %wrong;
  mov.u32 %block, %ntid.x;
  mov.u32 %place, %ctaid.x;
  mul.lo.u32 %place, %place, %block;
  mov.u32 %more_places, %nctaid.x;
  mul.lo.u32 %more_places, %more_places, %block;
  mov.u32 %block, %tid.x;
  add.u32 %place, %place, %block;
  div.u32 %block, %place, %places;
  rem.u32 %place, %place, %places;
  div.u32 %more_blocks, %more_places, %places;
  rem.u32 %more_places, %more_places, %places;
)";

/// Where the indices are, and how those of `%block` get into `%s` and `%d` under the predicate `@`.
struct index_source {
  char const* name;
  char const* parameter;
  char const* prepare;
  char const* load;
};

constexpr index_source few{"move_few", ".param .b64 pairs[256]",
                           R"(  mov.u64 %list, pairs;
)",
                           R"(  add.u64 %at, %list, %at;
  @ ld.param.u32 %s32, [%at];
  @ ld.param.u32 %d32, [%at+4];
  cvt.u64.u32 %s, %s32;
  cvt.u64.u32 %d, %d32;
)"};

constexpr index_source many{"move_many", ".param .u64 pairs",
                            R"(  ld.param.u64 %list, [pairs];
  cvta.to.global.u64 %list, %list;
)",
                            R"(  add.u64 %at, %list, %at;
  @ ld.global.v2.u32 {%s32, %d32}, [%at];
  cvt.u64.u32 %s, %s32;
  cvt.u64.u32 %d, %d32;
)"};

constexpr index_source given{"move_given", ".param .u64 from, .param .u64 to",
                             R"(  ld.param.u64 %list, [from];
  cvta.to.global.u64 %list, %list;
  ld.param.u64 %list_to, [to];
  cvta.to.global.u64 %list_to, %list_to;
)",
                             R"(  add.u64 %d, %list_to, %at;
  add.u64 %at, %list, %at;
  @ ld.global.u64 %s, [%at];
  @ ld.global.u64 %d, [%d];
)"};

constexpr char const* find_word = R"(  setp.lt.u32 %p#, %block, %count;
  cvt.u64.u32 %at, %block;
  shl.b64 %at, %at, 3;
)";

constexpr char const* check_word = R"(  setp.lt.u64 %q, %s, %source_blocks;
  setp.lt.u64 %u, %d, %to_blocks;
  and.pred %q, %q, %u;
  and.pred %q, %q, %p#;
  xor.pred %u, %q, %p#;
  @%u st.volatile.global.u32 [%wrong], 1;
  mul.lo.u64 %s, %s, %source_stride;
  add.u64 %f#, %source, %s;
  mul.lo.u64 %d, %d, %to_stride;
  add.u64 %t#, %to, %d;
  and.b64 %s, %f#, %source_lines;
  and.b64 %d, %t#, %to_lines;
  add.u64 %s, %s, %d;
  shr.u64 %s, %s, 4;
  cvt.u32.u64 %word, %s;
  sub.u32 %word, %place, %word;
  setp.lt.u32 %u, %word, %words;
  and.pred %p#, %q, %u;
  cvt.u64.u32 %in, %word;
  shl.b64 %in, %in, 4;
  add.u64 %f#, %f#, %in;
  add.u64 %t#, %t#, %in;
  add.u32 %block, %block, %more_blocks;
  add.u32 %place, %place, %more_places;
  setp.ge.u32 %q, %place, %places;
  @%q sub.u32 %place, %place, %places;
  @%q add.u32 %block, %block, 1;
)";

constexpr char const* load_word = R"(  @%p# ld.global.cg.v4.b32 $, [%f#];
)";

constexpr char const* store_word = R"(  @%p# st.global.cg.v4.b32 [%t#], $;
)";

/// "{%x4, %x5, %x6, %x7}" for word 1.
std::string registers_of(int word) {
  std::string made;
  for (int i = 4 * word; i < 4 * word + 4; ++i) {
    made += (made.empty() ? "{%x" : ", %x") + std::to_string(i);
  }
  return made + "}";
}

std::string entry(index_source const& indices) {
  std::string made{".visible .entry "};
  made += std::string{indices.name} + "(" + parameters + indices.parameter + begin;
  made +=
      std::string{indices.prepare} + "again:\n  setp.ge.u32 %q, %block, %count;\n  @%q bra done;\n";
  for (int i = 0; i < words_in_flight; ++i) {
    auto const number = std::to_string(i);
    made += with(find_word, '#', number) + with(indices.load, '@', "@%p" + number) +
            with(check_word, '#', number);
  }
  for (int i = 0; i < words_in_flight; ++i) {
    made += with(with(load_word, '#', std::to_string(i)), '$', registers_of(i));
  }
  for (int i = 0; i < words_in_flight; ++i) {
    made += with(with(store_word, '#', std::to_string(i)), '$', registers_of(i));
  }
  return made + "  bra again;\ndone:\n  ret;\n}\n";
}

}  // namespace

std::string const& block_kernel_text() {
  static auto const& text = *new std::string{kernel_head + entry(few) + entry(many) + entry(given)};
  return text;
}

}  // namespace pyxfer
