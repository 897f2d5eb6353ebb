#include "casts/item.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace pyxfer::tests {
namespace {

TEST(casts_item, has_the_name_that_numpy_gives_it) {
  EXPECT_STREQ(word_of(item_kind::boolean), "bool");
  EXPECT_STREQ(word_of(item_kind::u16), "uint16");
  EXPECT_STREQ(word_of(item_kind::i64), "int64");
  EXPECT_STREQ(word_of(item_kind::bf16), "bfloat16");
  EXPECT_STREQ(word_of(item_kind::f64), "float64");
}

TEST(casts_item, is_found_by_its_name) {
  for (std::size_t i = 0; i < item_kinds; ++i) {
    auto const kind = static_cast<item_kind>(i);
    EXPECT_EQ(item_kind_of(word_of(kind)), kind);
  }
}

TEST(casts_item, has_the_size_that_its_name_says) {
  EXPECT_EQ(bytes_of(item_kind::boolean), 1);
  for (std::size_t i = 1; i < item_kinds; ++i) {
    auto const kind = static_cast<item_kind>(i);
    std::string const word{word_of(kind)};
    EXPECT_EQ(8 * bytes_of(kind), std::stoul(word.substr(word.find_first_of("0123456789"))))
        << word;
  }
}

TEST(casts_item, is_none_of_others) {
  for (auto const* const word : {"", "complex64", "float", "<f4", "int"}) {
    EXPECT_THROW(static_cast<void>(item_kind_of(word)), std::invalid_argument) << word;
  }
}

}  // namespace
}  // namespace pyxfer::tests
