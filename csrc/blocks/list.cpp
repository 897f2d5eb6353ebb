#include "blocks/list.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace pyxfer {
namespace {

constexpr unsigned word_bits = 64;
/// With more bits than this for each index a table of the indices is smaller than the bits.
constexpr std::size_t bits_for_each = 128;

[[noreturn]] void refuse_index(char const* name, std::size_t place, std::int64_t value,
                               std::size_t blocks) {
  throw std::invalid_argument(std::string{name} + "[" + std::to_string(place) + "] is " +
                              std::to_string(value) + ", and the pool has the blocks 0 to " +
                              std::to_string(blocks - 1) + ": give indices inside the pool");
}

/// The loop has no branch and nothing that SSE2 lacks, so that the compiler makes vectors of it: an
/// index below 0, or above the last block, gives a negative number.
void validate_range(char const* name, std::int64_t const* indices, std::size_t count,
                    std::size_t blocks) {
  if (count == 0) { return; }
  auto const last = static_cast<std::uint64_t>(blocks) - 1;
  std::uint64_t outside = 0;
  for (std::size_t i = 0; i < count; ++i) {
    auto const block = static_cast<std::uint64_t>(indices[i]);
    outside |= block | (last - block);
  }
  if (static_cast<std::int64_t>(outside) >= 0) { return; }
  if (blocks == 0) {
    throw std::invalid_argument(std::string{name} + " names blocks of a pool that has none");
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (static_cast<std::uint64_t>(indices[i]) >= blocks) {
      refuse_index(name, i, indices[i], blocks);
    }
  }
}

[[noreturn]] void refuse_repetition(std::int64_t block) {
  throw std::invalid_argument("destination_indices names block " + std::to_string(block) +
                              " twice: give each block of the destination once");
}

bool is_ascending(block_list const& list) {
  return std::adjacent_find(list.to, list.to + list.count, std::greater_equal<>{}) ==
         list.to + list.count;
}

/// A block that the list writes twice. It is called if there is one.
std::int64_t repeated_block(block_list const& list) {
  std::vector<std::int64_t> sorted(list.to, list.to + list.count);
  std::sort(sorted.begin(), sorted.end());
  return *std::adjacent_find(sorted.begin(), sorted.end());
}

/// A bit for each block of the pool; no branch depends on it.
bool has_repetition_in_bits(block_list const& list, std::size_t blocks) {
  thread_local std::vector<std::uint64_t> words;
  words.assign(blocks / word_bits + 1, 0);
  std::uint64_t twice = 0;
  for (std::size_t i = 0; i < list.count; ++i) {
    auto const block = static_cast<std::uint64_t>(list.to[i]);
    auto& word = words[block / word_bits];
    auto const bit = std::uint64_t{1} << block % word_bits;
    twice |= word & bit;
    word |= bit;
  }
  return twice != 0;
}

/// A table of twice as many places as there are blocks. A block is in the first free place from its
/// own one on.
bool has_repetition_in_table(block_list const& list) {
  constexpr std::uint64_t spread = 0x9E3779B97F4A7C15;  // 2^64 divided by the golden ratio
  unsigned bits = 1;
  while ((std::size_t{1} << bits) < 2 * list.count) { ++bits; }
  thread_local std::vector<std::int64_t> places;
  places.assign(std::size_t{1} << bits, -1);
  for (std::size_t i = 0; i < list.count; ++i) {
    auto const block = list.to[i];
    auto at = (static_cast<std::uint64_t>(block) * spread) >> (word_bits - bits);
    while (places[at] != -1) {
      if (places[at] == block) { return true; }
      at = (at + 1) & (places.size() - 1);
    }
    places[at] = block;
  }
  return false;
}

void validate_no_repetition(block_list const& list, std::size_t blocks) {
  if (is_ascending(list)) { return; }
  auto const few = list.count < blocks / bits_for_each;
  if (few ? has_repetition_in_table(list) : has_repetition_in_bits(list, blocks)) {
    refuse_repetition(repeated_block(list));
  }
}

void validate_pool(char const* name, block_pool const& pool, std::size_t block_bytes) {
  if (pool.blocks == 0) { return; }
  if (pool.address == 0) {
    throw std::invalid_argument(std::string{"the "} + name +
                                " has no memory: perhaps it was freed");
  }
  if (pool.blocks > 1 && pool.stride < block_bytes) {
    throw std::invalid_argument(std::string{"the blocks of the "} + name + " overlap");
  }
}

}  // namespace

void validate(block_copy const& between) {
  if (between.block_bytes == 0) { throw std::invalid_argument("a block has at least one byte"); }
  auto const& [source, destination, block_bytes] = between;
  validate_pool("source", source, block_bytes);
  validate_pool("destination", destination, block_bytes);
  if (source.address < destination.end(block_bytes) &&
      destination.address < source.end(block_bytes)) {
    throw std::invalid_argument(
        "source and destination overlap in memory: copy through a third array");
  }
}

void validate(block_copy const& between, block_list const& list) {
  validate_range("source_indices", list.from, list.count, between.source.blocks);
  validate_range("destination_indices", list.to, list.count, between.destination.blocks);
  validate_no_repetition(list, between.destination.blocks);
}

std::vector<block_run> runs_of(block_copy const& between, block_list const& list) {
  auto const merges = between.source.stride == between.block_bytes &&
                      between.destination.stride == between.block_bytes;
  std::vector<block_run> made;
  for (std::size_t i = 0; i < list.count; ++i) {
    auto const from = static_cast<std::size_t>(list.from[i]);
    auto const to = static_cast<std::size_t>(list.to[i]);
    if (merges && !made.empty() && made.back().from + made.back().blocks == from &&
        made.back().to + made.back().blocks == to) {
      ++made.back().blocks;
    } else {
      made.push_back({from, to, 1});
    }
  }
  return made;
}

std::optional<block_steps> steps_of(block_list const& list) {
  if (list.count < 2) { return block_steps{1, 1}; }
  auto const from = list.from[1] - list.from[0];
  auto const to = list.to[1] - list.to[0];
  if (from <= 0 || to <= 0) { return std::nullopt; }
  for (std::size_t i = 1; i < list.count; ++i) {
    if (list.from[i] - list.from[i - 1] != from || list.to[i] - list.to[i - 1] != to) {
      return std::nullopt;
    }
  }
  return block_steps{static_cast<std::size_t>(from), static_cast<std::size_t>(to)};
}

}  // namespace pyxfer
