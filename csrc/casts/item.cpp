#include "casts/item.hpp"

#include <array>
#include <stdexcept>

namespace pyxfer {
namespace {

struct item_facts {
  char const* word;
  std::size_t bytes;
};

/// In the order of `item_kind`.
constexpr std::array<item_facts, item_kinds> facts{{{"bool", 1},
                                                    {"uint8", 1},
                                                    {"int8", 1},
                                                    {"uint16", 2},
                                                    {"int16", 2},
                                                    {"uint32", 4},
                                                    {"int32", 4},
                                                    {"uint64", 8},
                                                    {"int64", 8},
                                                    {"float16", 2},
                                                    {"bfloat16", 2},
                                                    {"float32", 4},
                                                    {"float64", 8}}};

}  // namespace

item_kind item_kind_of(std::string const& word) {
  for (std::size_t i = 0; i < item_kinds; ++i) {
    if (word == facts[i].word) { return static_cast<item_kind>(i); }
  }
  throw std::invalid_argument("unknown format \"" + word +
                              "\"; known are bool, int8 to int64, uint8 to uint64, float16, "
                              "bfloat16, float32 and float64");
}

char const* word_of(item_kind kind) noexcept { return facts[static_cast<std::size_t>(kind)].word; }

std::size_t bytes_of(item_kind kind) noexcept {
  return facts[static_cast<std::size_t>(kind)].bytes;
}

}  // namespace pyxfer
