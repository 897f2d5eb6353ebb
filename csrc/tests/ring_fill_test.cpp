#include "casts/processor.hpp"
#include "ring/fill.hpp"

#include "ring_support.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace pyxfer::tests {
namespace {

constexpr std::size_t most_bytes = 600;
constexpr std::size_t alignments = 64;
constexpr std::size_t guard = 128;

class ring_fill : public ::testing::TestWithParam<fill_kernel> {};

TEST_P(ring_fill, copies_every_size_to_every_alignment_and_touches_nothing_else) {
  auto const source = random_bytes(most_bytes + alignments, 3);
  bytes const untouched(guard + alignments + most_bytes + guard, 0xA5);
  bytes target = untouched;
  // The alignment of the vector's memory varies.
  auto const to_line = alignments - reinterpret_cast<std::uintptr_t>(target.data()) % alignments;
  bytes expected = untouched;
  for (std::size_t place = 0; place < alignments; ++place) {
    auto const at = to_line + place;
    auto const* const from = source.data() + place * 7 % alignments;
    for (std::size_t size = 0; size <= most_bytes; ++size) {
      GetParam().copy(target.data() + at, from, size);
      std::memcpy(expected.data() + at, from, size);
      ASSERT_EQ(std::memcmp(target.data(), expected.data(), target.size()), 0)
          << size << " bytes to alignment " << place;
    }
    target = untouched;
    expected = untouched;
  }
}

TEST_P(ring_fill, copies_large_blocks) {
  constexpr std::size_t size = (std::size_t{1} << 20U) + 77;
  auto const source = random_bytes(size + 5, 4);
  bytes target(size);
  GetParam().copy(target.data(), source.data() + 5, size);
  EXPECT_EQ(std::memcmp(target.data(), source.data() + 5, size), 0);
}

INSTANTIATE_TEST_SUITE_P(of_this_processor, ring_fill,
                         ::testing::ValuesIn(executable_fill_kernels()), [](auto const& tested) {
                           std::string name{tested.param.name};
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(ring_fill_kind, is_named_in_words) {
  for (auto const kind : {fill_kind::plain, fill_kind::streaming, fill_kind::demoting}) {
    EXPECT_EQ(fill_kind_of(word_of(kind)), kind);
  }
  EXPECT_EQ(text_of<std::invalid_argument>([] { static_cast<void>(fill_kind_of("fast")); }),
            "unknown fill \"fast\"; known are plain, streaming and demoting");
}

#ifdef __x86_64__

/// The file of this program, which is mapped once and stays so: with sanitizers it has 100 MB.
char const* program() {
  static auto const* const mapped = [] {
    auto const file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    auto const bytes = static_cast<std::size_t>(std::filesystem::file_size("/proc/self/exe"));
    auto* const pages = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    ::close(file);
    if (pages == MAP_FAILED) { throw std::runtime_error("this program cannot be mapped"); }
    return static_cast<char const*>(pages);
  }();
  return mapped;
}

/// The machine code of a function, found in this program's symbol table; nothing if it has none.
std::optional<std::vector<unsigned char>> code_of(fill_function function) {
  auto const* const header = reinterpret_cast<Elf64_Ehdr const*>(program());
  auto const* const sections = reinterpret_cast<Elf64_Shdr const*>(program() + header->e_shoff);
  // The address at which the program was loaded; its first segment has address 0.
  auto const base = ::getauxval(AT_PHDR) - header->e_phoff;
  auto const* const code = reinterpret_cast<unsigned char const*>(function);
  auto has_symbols = false;
  for (auto const* section = sections; section != sections + header->e_shnum; ++section) {
    if (section->sh_type != SHT_SYMTAB) { continue; }
    has_symbols = true;
    auto const* const symbols = reinterpret_cast<Elf64_Sym const*>(program() + section->sh_offset);
    for (auto const* symbol = symbols; symbol != symbols + section->sh_size / sizeof *symbol;
         ++symbol) {
      if (base + symbol->st_value == reinterpret_cast<std::uintptr_t>(code) &&
          symbol->st_size != 0) {
        return std::vector<unsigned char>(code, code + symbol->st_size);
      }
    }
  }
  if (has_symbols) { return std::vector<unsigned char>{}; }
  return std::nullopt;
}

/// Without a fence, streaming stores are not ordered with what follows, not even with a lock. A
/// test can only observe that with a device, so this one inspects the code.
TEST(ring_fill_code, has_a_store_fence_in_every_kernel_that_streams_or_demotes) {
  constexpr std::array<unsigned char, 3> sfence{0x0F, 0xAE, 0xF8};
  for (auto const& kernel : executable_fill_kernels()) {
    if (kernel.kind == fill_kind::plain) { continue; }
    auto const code = code_of(kernel.copy);
    if (!code) { GTEST_SKIP() << "this program was stripped of its symbols"; }
    ASSERT_FALSE(code->empty()) << kernel.name;
    EXPECT_NE(std::search(code->begin(), code->end(), sfence.begin(), sfence.end()), code->end())
        << kernel.name;
  }
}

TEST(ring_fill_kind, is_demoting_only_if_the_processor_has_the_instruction) {
  auto const has = this_processor();
  auto const expected = has.cldemote && has.avx2 ? fill_kind::demoting : fill_kind::streaming;
  EXPECT_EQ(fill_kernel_of(fill_kind::demoting).kind, expected);
}

#endif

TEST(ring_fill_kind, has_the_best_kernel_of_this_processor) {
  EXPECT_STREQ(fill_kernel_of(fill_kind::plain).name, "plain");
  EXPECT_STREQ(fill_kernel_of(fill_kind::demoting).name, fill_kernels().back().name);
  EXPECT_EQ(fill_kernel_of(fill_kind::streaming).kind, fill_kind::streaming);
}

}  // namespace
}  // namespace pyxfer::tests
