#include "blocks/mover.hpp"

#include "blocks/kernel_text.hpp"
#include "blocks_support.hpp"
#include "copy/content.hpp"
#include "cuda/device.hpp"
#include "fork_support.hpp"

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>

namespace pyxfer::tests {
namespace {

class blocks_mover : public engine_test {
 protected:
  static constexpr std::size_t block = 64;

  static std::string refusal(block_mover& mover, move_method by, block_copy const& between,
                             block_list const& list, std::optional<stream_view> on = {}) {
    return text_of<std::invalid_argument>([&] { mover.move(by, between, list, on); });
  }
};

constexpr move_method every_method[] = {move_method::loop, move_method::batch, move_method::strided,
                                        move_method::kernel};

/// Both directions and device to device, with and without gaps, few indices and many.
TEST_F(blocks_mover, writes_the_named_blocks_and_nothing_else) {
  block_mover mover{0};
  for (auto const& [from_device, to_device] :
       {std::pair{false, true}, {true, false}, {true, true}}) {
    for (auto const gap : {std::size_t{0}, std::size_t{16}}) {
      pool_of_blocks const source{from_device, 700, block, gap, 1};
      pool_of_blocks const destination{to_device, 900, block, gap, 2};
      block_copy const between{source.view(), destination.view(), block};
      for (auto const count : {std::size_t{1}, most_few_blocks, most_few_blocks + 1}) {
        for (auto const by : every_method) {
          auto from = random_indices(700, count, 3);
          auto to = random_indices(900, count, 4);
          if (by == move_method::strided) {
            for (std::size_t i = 0; i < count; ++i) {
              from[i] = static_cast<std::int64_t>(2 * i + 1);
              to[i] = static_cast<std::int64_t>(3 * i);
            }
          }
          auto const expected = destination.after(source, list_of(from, to));
          mover.move(by, between, list_of(from, to), std::nullopt);
          mover.wait(std::nullopt);
          EXPECT_EQ(destination.memory(), expected) << static_cast<int>(by) << " " << count;
        }
      }
    }
  }
}

TEST_F(blocks_mover, cuts_blocks_of_any_number_of_words) {
  block_mover mover{0};
  mover.set_shape({3, 40});  // no multiple of anything
  for (auto const bytes : {std::size_t{16}, std::size_t{48}, std::size_t{208}, std::size_t{4096}}) {
    pool_of_blocks const source{false, 40, bytes, 0, 1};
    pool_of_blocks const destination{true, 50, bytes, 0, 2};
    auto const from = random_indices(40, 33, 1);
    auto const to = random_indices(50, 33, 2);
    auto const expected = destination.after(source, list_of(from, to));
    mover.move(move_method::kernel, {source.view(), destination.view(), bytes}, list_of(from, to),
               std::nullopt);
    mover.wait(std::nullopt);
    EXPECT_EQ(destination.memory(), expected) << bytes;
  }
}

TEST_F(blocks_mover, cuts_blocks_at_lines_of_host_memory) {
  block_mover mover{0};
  mover.set_shape({3, 40});
  for (auto const bytes :
       {std::size_t{512}, std::size_t{528}, std::size_t{624}, std::size_t{1744}}) {
    for (auto const gap : {std::size_t{0}, std::size_t{16}, std::size_t{112}}) {
      for (auto const to_device : {true, false}) {
        pool_of_blocks const source{!to_device, 40, bytes, gap, 1};
        pool_of_blocks const destination{to_device, 50, bytes, 16, 2};
        auto const from = random_indices(40, 33, 1);
        auto const to = random_indices(50, 33, 2);
        auto const expected = destination.after(source, list_of(from, to));
        mover.move(move_method::kernel, {source.view(), destination.view(), bytes},
                   list_of(from, to), std::nullopt);
        mover.wait(std::nullopt);
        EXPECT_EQ(destination.memory(), expected) << bytes << " + " << gap << ", " << to_device;
      }
    }
  }
}

TEST_F(blocks_mover, kernels_are_for_every_device_and_driver) {
  EXPECT_EQ(block_kernel_text().rfind(".version 6.0\n.target sm_50\n", 0), 0U);
  EXPECT_NE(block_kernel_text().find("pairs[" + std::to_string(most_few_blocks) + "]"),
            std::string::npos);
}

TEST_F(blocks_mover, splits_a_batch) {
  block_mover mover{0};
  constexpr std::size_t blocks = 2 * block_mover::most_in_batch + 2;
  pool_of_blocks const source{false, blocks, 16, 0, 1};
  pool_of_blocks const destination{true, blocks, 16, 0, 2};
  index_list from(blocks / 2 + 1);
  for (std::size_t i = 0; i < from.size(); ++i) { from[i] = static_cast<std::int64_t>(2 * i); }
  from.back() = 1;
  auto const expected = destination.after(source, list_of(from, from));
  auto const before = count_of("cuMemcpyBatchAsync");
  mover.move(move_method::batch, {source.view(), destination.view(), 16}, list_of(from, from), {});
  mover.wait({});
  EXPECT_EQ(destination.memory(), expected);
  EXPECT_EQ(count_of("cuMemcpyBatchAsync") - before, 2);
}

TEST_F(blocks_mover, merges_neighbours_into_one_copy) {
  block_mover mover{0};
  pool_of_blocks const source{false, 100, block, 0, 1};
  pool_of_blocks const destination{true, 100, block, 0, 2};
  auto all = random_indices(100, 100, 1);
  std::sort(all.begin(), all.end());
  auto const before = count_of("cuMemcpyAsync");
  mover.move(move_method::loop, {source.view(), destination.view(), block}, list_of(all, all), {});
  mover.wait({});
  EXPECT_EQ(count_of("cuMemcpyAsync") - before, 1);
}

TEST_F(blocks_mover, indices_on_the_device_are_checked_there) {
  block_mover mover{0};
  pool_of_blocks const source{false, 30, block, 0, 1};
  pool_of_blocks const destination{true, 30, block, 0, 2};
  block_copy const between{source.view(), destination.view(), block};
  device_buffer const from{8 * 4, 0};
  device_buffer const to{8 * 4, 0};
  index_list const right_from{5, 6, 7, 8};
  index_list const right_to{1, 29, 2, 0};
  auto const write = [](device_buffer const& there, index_list const& values) {
    std::memcpy(inside(there.address()), values.data(), values.size() * sizeof values[0]);
  };
  write(from, right_from);
  write(to, right_to);
  auto expected = destination.after(source, list_of(right_from, right_to));
  mover.move_given(between, from.address(), to.address(), 4, {});
  mover.wait({});
  EXPECT_EQ(destination.memory(), expected);

  write(from, {-1, 9, 30, 10});
  write(to, {3, 4, 5, std::int64_t{1} << 40U});
  index_list const good_from{9};
  index_list const good_to{4};
  expected = destination.after(source, list_of(good_from, good_to));
  mover.move_given(between, from.address(), to.address(), 4, {});
  EXPECT_NE(text_of<std::out_of_range>([&] { mover.wait({}); }).find("outside its pool"),
            std::string::npos);
  EXPECT_EQ(destination.memory(), expected);
  mover.wait({});  // it is said once
}

TEST_F(blocks_mover, waits_for_the_earlier_work_of_the_stream) {
  block_mover mover{0};
  stream const on{0};
  pool_of_blocks const first{true, 8, block, 0, 1};
  pool_of_blocks const middle{false, 8, block, 0, 2};
  pool_of_blocks const last{true, 8, block, 0, 3};
  auto const list = random_indices(8, 8, 1);
  hostrt::stall("cuLaunchKernel", 1, 0.05);
  mover.move(move_method::kernel, {first.view(), middle.view(), block}, list_of(list, list),
             on.view());
  mover.move(move_method::loop, {middle.view(), last.view(), block}, list_of(list, list),
             on.view());
  mover.wait(on.view());
  EXPECT_EQ(last.after(first, list_of(list, list)), last.memory());
}

TEST_F(blocks_mover, strided_copies_need_equal_steps_that_a_pitch_holds) {
  block_mover mover{0};
  pool_of_blocks const destination{true, 8, block, 0, 2};
  block_pool const far_apart{4096, 40, std::size_t{1} << 28U};
  block_copy const between{far_apart, destination.view(), block};
  EXPECT_NE(refusal(mover, move_method::strided, between, list_of({0, 8}, {0, 1})).find("2 GiB"),
            std::string::npos);
  EXPECT_NE(
      refusal(mover, move_method::strided, between, list_of({3, 2}, {0, 1})).find("equal steps"),
      std::string::npos);
}

TEST_F(blocks_mover, without_the_call_for_many_copies_refuses_batches) {
  hostrt::set_missing("cuMemcpyBatchAsync", true);
  block_mover mover{0};
  EXPECT_FALSE(mover.has_batch());
  pool_of_blocks const source{false, 8, block, 0, 1};
  pool_of_blocks const destination{true, 8, block, 0, 2};
  index_list const one{1};
  EXPECT_NE(refusal(mover, move_method::batch, {source.view(), destination.view(), block},
                    list_of(one, one))
                .find("CUDA 12.8"),
            std::string::npos);
}

TEST_F(blocks_mover, without_a_compiler_says_why_there_is_no_kernel) {
  hostrt::fail("cuModuleLoadData", 1, cudaErrorJitCompilerNotFound);
  block_mover mover{0};
  EXPECT_NE(mover.no_kernel().find("libnvidia-ptxjitcompiler"), std::string::npos);
  pool_of_blocks const source{false, 8, block, 0, 1};
  pool_of_blocks const destination{true, 8, block, 0, 2};
  index_list const one{1};
  block_copy const between{source.view(), destination.view(), block};
  EXPECT_NE(refusal(mover, move_method::kernel, between, list_of(one, one)).find("no kernels"),
            std::string::npos);
  mover.move(move_method::loop, between, list_of(one, one), {});
  mover.wait({});
}

TEST_F(blocks_mover, a_kernel_never_gets_memory_that_the_device_cannot_access) {
  block_mover mover{0};
  std::vector<unsigned char> ordinary(8 * block + 16);
  auto const address =
      (reinterpret_cast<std::uintptr_t>(ordinary.data()) + 15) & ~std::uintptr_t{15};
  pool_of_blocks const destination{true, 8, block, 0, 2};
  index_list const one{1};
  EXPECT_NE(refusal(mover, move_method::kernel, {{address, 8, block}, destination.view(), block},
                    list_of(one, one))
                .find("neither page-locked"),
            std::string::npos);
  block_pool freed{};
  { freed = pool_of_blocks{false, 8, block, 0, 1}.view(); }
  EXPECT_NE(
      refusal(mover, move_method::kernel, {freed, destination.view(), block}, list_of(one, one))
          .find("was freed"),
      std::string::npos);
}

TEST_F(blocks_mover, a_batch_is_refused_on_the_legacy_default_stream) {
  block_mover mover{0};
  pool_of_blocks const source{false, 8, block, 0, 1};
  pool_of_blocks const destination{true, 8, block, 0, 2};
  index_list const one{1};
  EXPECT_NE(refusal(mover, move_method::batch, {source.view(), destination.view(), block},
                    list_of(one, one), stream_view{nullptr})
                .find("legacy default stream"),
            std::string::npos);
}

TEST_F(blocks_mover, a_capture_takes_few_blocks_and_refuses_what_it_cannot_hold) {
  block_mover mover{0};
  stream const on{0};
  auto const handle = reinterpret_cast<std::uintptr_t>(on.handle());
  pool_of_blocks const source{false, 400, block, 0, 1};
  pool_of_blocks const destination{true, 400, block, 0, 2};
  block_copy const between{source.view(), destination.view(), block};
  auto const few = random_indices(400, 16, 1);
  auto const many = random_indices(400, 300, 1);
  hostrt::begin_capture(handle, "global");
  EXPECT_TRUE(mover.captures(on.view()));
  EXPECT_FALSE(mover.captures({}));
  mover.move(move_method::kernel, between, list_of(few, few), on.view());
  mover.move(move_method::loop, between, list_of(few, few), on.view());
  EXPECT_NE(refusal(mover, move_method::kernel, between, list_of(many, many), on.view())
                .find("CUDA graph"),
            std::string::npos);
  EXPECT_NE(
      refusal(mover, move_method::batch, between, list_of(few, few), on.view()).find("CUDA graph"),
      std::string::npos);
  // Beside it, on the mover's own stream.
  mover.move(move_method::kernel, between, list_of(many, many), {});
  mover.wait({});
  EXPECT_EQ(hostrt::end_capture(handle), 0);
}

TEST_F(blocks_mover, many_indices_take_turns_in_the_slots) {
  block_mover mover{0};
  constexpr std::size_t blocks = index_slots::most_pairs + 5000;
  pool_of_blocks const source{false, blocks, 16, 0, 1};
  pool_of_blocks const destination{true, blocks, 16, 0, 2};
  auto const from = random_indices(blocks, blocks, 1);
  auto const to = random_indices(blocks, blocks, 2);
  auto const expected = destination.after(source, list_of(from, to));
  mover.move(move_method::kernel, {source.view(), destination.view(), 16}, list_of(from, to), {});
  mover.wait({});
  EXPECT_EQ(destination.memory(), expected);
}

TEST_F(blocks_mover, a_lost_device_ends_the_wait) {
  block_mover mover{0};
  pool_of_blocks const source{false, 8, block, 0, 1};
  pool_of_blocks const destination{true, 8, block, 0, 2};
  index_list const one{1};
  hostrt::stall("cuLaunchKernel", 1, 60);
  mover.move(move_method::kernel, {source.view(), destination.view(), block}, list_of(one, one),
             {});
  hostrt::lose_device(cudaErrorECCUncorrectable);
  EXPECT_THROW(mover.wait({}), device_lost_error);
  EXPECT_THROW(mover.move(move_method::loop, {source.view(), destination.view(), block},
                          list_of(one, one), {}),
               device_lost_error);
  hostrt::reset();
}

TEST_F(blocks_mover, close_waits_and_refuses_later_copies) {
  block_mover mover{0};
  pool_of_blocks const source{false, 8, block, 0, 1};
  pool_of_blocks const destination{true, 8, block, 0, 2};
  index_list const one{1};
  block_copy const between{source.view(), destination.view(), block};
  hostrt::stall("cuLaunchKernel", 1, 60);
  mover.move(move_method::kernel, between, list_of(one, one), {});
  EXPECT_THROW(mover.close(0.01), timeout_error);
  hostrt::release_stalls();
  mover.close();
  EXPECT_NE(refusal(mover, move_method::loop, between, list_of(one, one)).find("closed"),
            std::string::npos);
  mover.close();
}

TEST_F(blocks_mover, abandoned_it_releases_nothing_and_refuses_later_copies) {
  pool_of_blocks const source{false, 8, block, 0, 1};
  pool_of_blocks const destination{true, 8, block, 0, 2};
  auto const kept = live();
  {
    block_mover mover{0};
    index_list const one{1};
    block_copy const between{source.view(), destination.view(), block};
    mover.move(move_method::kernel, between, list_of(one, one), {});
    mover.wait({});
    mover.abandon();
    EXPECT_NE(refusal(mover, move_method::loop, between, list_of(one, one)).find("closed"),
              std::string::npos);
    mover.close();
  }
  EXPECT_FALSE(made().empty());
  for (auto const& left : hostrt::allocated()) {
    if (left.kind == "module") {
      EXPECT_EQ(driver().cuModuleUnload(reinterpret_cast<CUmodule>(left.address)), CUDA_SUCCESS);
    }
  }
  release_all_but(kept);
}

TEST_F(blocks_mover, a_forked_child_is_refused_and_releases_nothing) {
  block_mover mover{0};
  pool_of_blocks const source{false, 8, block, 0, 1};
  pool_of_blocks const destination{true, 8, block, 0, 2};
  auto const text = in_forked_child([&] {
    index_list const one{1};
    mover.close();
    return text_of<forked_error>([&] {
      mover.move(move_method::loop, {source.view(), destination.view(), block}, list_of(one, one),
                 {});
    });
  });
  EXPECT_NE(text.find("forked"), std::string::npos) << text;
}

TEST_F(blocks_mover, every_failure_is_reported) {
  pool_of_blocks const source{false, 400, block, 0, 1};
  pool_of_blocks const destination{true, 400, block, 0, 2};
  block_copy const between{source.view(), destination.view(), block};
  auto const many = random_indices(400, 300, 1);
  index_list const few{1, 5};
  auto const action = [&] {
    block_mover mover{0};
    for (auto const by : every_method) { mover.move(by, between, list_of(few, few), {}); }
    mover.move(move_method::kernel, between, list_of(many, many), {});
    mover.wait({});
    mover.close();
  };
  hostrt::reset();
  action();
  for (auto const& [call, count] : hostrt::calls()) {
    // Without an entry point there is no call for many copies, which is no error.
    if (only_explains(call) || call == "cudaGetDriverEntryPointByVersion") { continue; }
    for (int nth = 1; nth <= std::min(count, call == "cuEventQuery" ? 2L : 60L); ++nth) {
      expect_failure_reported(action, call, nth);
    }
  }
}

// --- packed --------------------------------------------------------------------------------------

ring_settings const small_ring{2, std::size_t{64} << 10U, 4, fill_kind::plain, 20};

TEST_F(blocks_mover, packs_ordinary_memory_both_ways) {
  block_mover mover{0};
  ring through{0, small_ring};
  for (auto const bytes : {std::size_t{48}, std::size_t{16384}}) {
    constexpr std::size_t blocks = 120;
    std::vector<unsigned char> host(blocks * bytes);
    fill(reinterpret_cast<std::uintptr_t>(host.data()), host.size(), 5);
    std::vector<unsigned char> back(host.size(), 9);
    pool_of_blocks const memory{true, 150, bytes, 16, 2};
    auto const from = random_indices(blocks, 100, 1);
    auto const to = random_indices(150, 100, 2);
    auto const list = list_of(from, to);
    auto expected = memory.memory();
    for (std::size_t i = 0; i < list.count; ++i) {
      auto const place = 256 + static_cast<std::size_t>(to[i]) * memory.stride();
      std::memcpy(expected.data() + place, host.data() + static_cast<std::size_t>(from[i]) * bytes,
                  bytes);
    }
    block_pool const ordinary{reinterpret_cast<std::uintptr_t>(host.data()), blocks, bytes};
    mover.upload_packed(through, {ordinary, memory.view(), bytes}, list, {});
    mover.wait({});
    EXPECT_EQ(memory.memory(), expected);

    block_pool const target{reinterpret_cast<std::uintptr_t>(back.data()), blocks, bytes};
    mover.download_packed(through, {memory.view(), target, bytes}, list_of(to, from), {});
    for (std::size_t i = 0; i < blocks; ++i) {
      auto const named = std::count(from.begin(), from.end(), static_cast<std::int64_t>(i)) != 0;
      auto const at = static_cast<std::ptrdiff_t>(i * bytes);
      auto const same =
          std::equal(back.begin() + at, back.begin() + at + static_cast<std::ptrdiff_t>(bytes),
                     host.begin() + at);
      EXPECT_EQ(same, named) << i;
    }
  }
}

TEST_F(blocks_mover, refuses_to_pack_in_a_capture) {
  block_mover mover{0};
  ring through{0, small_ring};
  stream const on{0};
  auto const handle = reinterpret_cast<std::uintptr_t>(on.handle());
  pool_of_blocks const source{false, 8, block, 0, 1};
  pool_of_blocks const destination{true, 8, block, 0, 2};
  index_list const one{1};
  hostrt::begin_capture(handle, "global");
  EXPECT_NE(text_of<std::invalid_argument>([&] {
              mover.upload_packed(through, {source.view(), destination.view(), block},
                                  list_of(one, one), on.view());
            }).find("CUDA graph"),
            std::string::npos);
  EXPECT_EQ(hostrt::end_capture(handle), 0);
}

// --- threads -------------------------------------------------------------------------------------

/// Each thread has its own part of both pools, and copies there and back by changing methods.
TEST_F(blocks_mover, threads_share_it) {
  block_mover mover{0};
  ring through{0, small_ring};
  constexpr std::size_t threads = 4;
  constexpr std::size_t blocks = 300;
  std::atomic<int> wrong{0};
  std::vector<std::thread> running;
  for (std::size_t number = 0; number < threads; ++number) {
    running.emplace_back([&, number] {
      pool_of_blocks const source{false, blocks, block, 0, static_cast<unsigned char>(number)};
      pool_of_blocks destination{true, blocks, block, 0, 99};
      block_copy const between{source.view(), destination.view(), block};
      rounds turns{20};
      for (unsigned int turn = 0; turns.another(); ++turn) {
        destination.fill(static_cast<unsigned char>(turn));
        auto const count = turn % 2 == 0 ? std::size_t{20} : std::size_t{280};
        auto const from = random_indices(blocks, count, turn);
        auto const to = random_indices(blocks, count, turn + 1);
        auto const expected = destination.after(source, list_of(from, to));
        switch (turn % 4) {
          case 0: mover.move(move_method::kernel, between, list_of(from, to), {}); break;
          case 1: mover.move(move_method::kernel, between, list_of(from, to), {}); break;
          case 2: mover.move(move_method::batch, between, list_of(from, to), {}); break;
          default: mover.upload_packed(through, between, list_of(from, to), {}); break;
        }
        mover.wait({});
        if (destination.memory() != expected) { ++wrong; }
      }
    });
  }
  for (auto& each : running) { each.join(); }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace pyxfer::tests
