#include "trace/parse.hpp"

#include <gtest/gtest.h>

namespace pyxfer::trace::tests {
namespace {

TEST(trace_names, gives_every_name_one_number) {
  name_table table;
  auto const first = table.number_of("cudaMemcpy");
  auto const second = table.number_of("cudaFree");
  EXPECT_NE(first, second);
  EXPECT_EQ(table.number_of("cudaMemcpy"), first);
  EXPECT_EQ(table.names(), (std::vector<std::string>{"", "cudaMemcpy", "cudaFree"}));
}

TEST(trace_names, gives_number_0_to_no_name) {
  name_table table;
  EXPECT_EQ(table.number_of(""), 0U);
  EXPECT_EQ(table.number_of_kernel(nullptr), 0U);
}

TEST(trace_names, demangles_the_name_of_a_kernel) {
  name_table table;
  auto const number = table.number_of_kernel("_Z9transposePfi");
  EXPECT_EQ(table.names().at(number), "transpose(float*, int)");
  EXPECT_EQ(table.number_of_kernel("_Z9transposePfi"), number);
}

TEST(trace_names, keeps_a_kernel_name_that_is_not_mangled) {
  name_table table;
  EXPECT_EQ(table.names().at(table.number_of_kernel("triton_poi_fused_add_0")),
            "triton_poi_fused_add_0");
}

TEST(trace_names, keeps_a_name_that_its_owner_has_freed) {
  name_table table;
  std::string gone = "a name that does not fit into a string itself";
  auto const number = table.number_of(gone);
  gone.assign(gone.size(), 'x');
  EXPECT_EQ(table.number_of("a name that does not fit into a string itself"), number);
}

TEST(trace_names, are_bounded_in_number) {
  name_table table;
  for (std::size_t i = 0; i < name_table::most_names + 10; ++i) {
    static_cast<void>(table.number_of(std::to_string(i)));
  }
  EXPECT_EQ(table.names().size(), name_table::most_names);
  EXPECT_EQ(table.names().at(table.number_of("another")), "(too many names)");
  EXPECT_EQ(table.names().at(table.number_of("7")), "7");
}

TEST(trace_names, are_bounded_in_length) {
  name_table table;
  std::string const vast(name_table::most_bytes / 4, 'x');
  EXPECT_EQ(table.names().at(table.number_of(vast)), vast);
  EXPECT_EQ(table.names().at(table.number_of(vast + "y")), "(too many names)");
}

}  // namespace
}  // namespace pyxfer::trace::tests
