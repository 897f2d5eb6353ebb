#pragma once

#include <elf.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <vector>

namespace pyxfer::tests {

/// The file of this program, which is mapped once and stays so: with sanitizers it has 100 MB.
inline char const* program() {
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
inline std::optional<std::vector<unsigned char>> code_of(void const* function) {
  auto const* const header = reinterpret_cast<Elf64_Ehdr const*>(program());
  auto const* const sections = reinterpret_cast<Elf64_Shdr const*>(program() + header->e_shoff);
  // The address at which the program was loaded; its first segment has address 0.
  auto const base = ::getauxval(AT_PHDR) - header->e_phoff;
  auto const* const code = static_cast<unsigned char const*>(function);
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

inline bool has_store_fence(std::vector<unsigned char> const& code) {
  constexpr std::array<unsigned char, 3> sfence{0x0F, 0xAE, 0xF8};
  return std::search(code.begin(), code.end(), sfence.begin(), sfence.end()) != code.end();
}

}  // namespace pyxfer::tests
