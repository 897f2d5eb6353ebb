#include "copy/gate.hpp"
#include "cuda/device.hpp"
#include "cuda/memory.hpp"
#include "ring_trouble_support.hpp"

namespace pyxfer::tests {
namespace {

/// Transfers that do not use the slots.
class ring_direct : public ring_trouble {
 protected:
  [[nodiscard]] bytes on_device(std::size_t count) const {
    auto const* const first = inside(device());
    return {first, first + count};
  }
  /// Whether an upload returns while its copy is stalled.
  [[nodiscard]] bool returns_before_its_copy(ring& through, layout const& from, stream_view own,
                                             bool wait) const {
    hostrt::stall("cudaMemcpyAsync", 1, 60);
    std::atomic<bool> returned{false};
    std::thread uploading{[&] {
      static_cast<void>(through.upload(from, device(), own, wait));
      returned = true;
    }};
    await_calls("cudaMemcpyAsync", 1);
    auto const asked = count_of("cuEventQuery");
    await([&] { return returned || count_of("cuEventQuery") >= asked + 20; });
    auto const early = returned.load();
    hostrt::release_stalls();
    uploading.join();
    return early;
  }
  [[nodiscard]] static layout all_of(host_buffer const& memory) {
    return {memory.address(), 1, {static_cast<std::ptrdiff_t>(memory.size())}, {1}};
  }
  [[nodiscard]] static ring_settings with_direct(std::size_t direct_bytes) {
    auto made = settings;
    made.direct_bytes = direct_bytes;
    return made;
  }
};

TEST_F(ring_direct, copy_page_locked_memory_directly_in_one_copy) {
  host_buffer const locked{size, memory_kind::pinned, 0};
  auto const contents = random_bytes(size, 21);
  auto* const here = reinterpret_cast<void*>(locked.address());
  std::memcpy(here, contents.data(), size);
  ring made{0, settings};
  for (auto const wait : {true, false}) {
    auto const taken = made.upload(all_of(locked), device(), std::nullopt, wait);
    EXPECT_EQ(taken.copies, 1U);
    EXPECT_EQ(taken.chunks, 0U);
    EXPECT_EQ(on_device(size), contents);  // so the array may be changed
  }
  std::memset(here, 0, size);
  EXPECT_EQ(made.download(device(), all_of(locked), std::nullopt).copies, 1U);
  EXPECT_EQ(std::memcmp(here, contents.data(), size), 0);
}

/// The engine reads the array itself, which may be changed after the call returns, and not before.
TEST_F(ring_direct, return_when_page_locked_memory_has_been_read) {
  host_buffer const locked{size, memory_kind::pinned, 0};
  stream const own{0};
  ring made{0, settings};
  for (auto const wait : {true, false}) {
    hostrt::reset();
    EXPECT_FALSE(returns_before_its_copy(made, all_of(locked), own.view(), wait));
  }
}

/// Such a device may still read the array after the driver's call for the copy has returned.
TEST_F(ring_direct,
       return_when_a_small_array_has_been_read_by_a_device_that_reads_pageable_memory) {
  array const little{100};
  stream const own{0};
  for (auto const reads : {false, true}) {
    hostrt::reset();
    hostrt::set_attribute(cudaDevAttrPageableMemoryAccess, reads ? 1 : 0);
    ring made{0, with_direct(101)};
    EXPECT_NE(returns_before_its_copy(made, little.view(), own.view(), false), reads);
    synchronize_device(0);
  }
}

TEST_F(ring_direct, go_in_pieces_for_which_a_cancelled_transfer_waits) {
  constexpr std::size_t piece = std::size_t{64} << 20U;
  host_buffer const locked{piece + 2 * chunk, memory_kind::pinned, 0};
  device_buffer const there{locked.size(), 0};
  auto* const here = reinterpret_cast<unsigned char*>(locked.address());
  ring made{0, settings};
  EXPECT_EQ(made.download(there.address(), all_of(locked), std::nullopt).copies, 2U);
  std::memset(inside(there.address()), 0x5A, there.size());
  std::memset(here, 0, locked.size());
  hostrt::reset();
  hostrt::stall("cudaMemcpyAsync", 2, 0.2);
  canceller cancelling{made, 2};
  EXPECT_THROW(static_cast<void>(made.download(there.address(), all_of(locked), std::nullopt)),
               cancelled_error);
  static_cast<void>(cancelling.join());
  EXPECT_EQ(take_cleanup_failures(), std::vector<std::string>{});
  bytes const left{here, here + locked.size()};
  synchronize_device(0);
  EXPECT_EQ(std::memcmp(here, left.data(), left.size()), 0);  // no copy wrote after the error
}

TEST_F(ring_direct, note_that_a_stuck_device_may_still_write_a_cancelled_array) {
  host_buffer const locked{size, memory_kind::pinned, 0};
  ring made{0, settings};
  hostrt::stall("cudaMemcpyAsync", 1, 60);
  canceller cancelling{made, 1};
  EXPECT_THROW(static_cast<void>(made.download(device(), all_of(locked), std::nullopt)),
               cancelled_error);
  static_cast<void>(cancelling.join());
  EXPECT_EQ(take_cleanup_failures().size(), 1U);
  hostrt::release_stalls();
  synchronize_device(0);
}

TEST_F(ring_direct, issue_nothing_before_the_work_that_they_wait_for) {
  host_buffer const locked{size, memory_kind::pinned, 0};
  stream const own{0};
  gate held{own.view(), 60};
  ring made{0, settings};
  std::thread cancelling{[&] {
    await_calls("cuEventQuery", 20);
    made.cancel();
  }};
  EXPECT_THROW(static_cast<void>(made.download(device(), all_of(locked), own.view())),
               cancelled_error);
  cancelling.join();
  EXPECT_EQ(count_of("cudaMemcpyAsync"), 0);
  held.open();
  synchronize_device(0);
}

TEST_F(ring_direct, are_not_used_if_only_a_part_of_the_memory_is_page_locked) {
  host_buffer const whole{2 * chunk, memory_kind::pageable, 0};
  auto* const here = reinterpret_cast<void*>(whole.address());
  auto const contents = random_bytes(2 * chunk, 22);
  std::memcpy(here, contents.data(), 2 * chunk);
  ASSERT_EQ(cudaHostRegister(here, chunk, 0), cudaSuccess);
  ring made{0, settings};
  EXPECT_EQ(made.upload(all_of(whole), device(), std::nullopt, true).chunks, 2U);
  EXPECT_EQ(on_device(2 * chunk), contents);
  ASSERT_EQ(cudaHostUnregister(here), cudaSuccess);
}

TEST_F(ring_direct, leave_small_uploads_to_the_driver) {
  array const little{100};
  ring made{0, with_direct(101)};
  EXPECT_EQ(made.upload(little.view(), device(), std::nullopt, true).chunks, 0U);
  EXPECT_EQ(on_device(100), little.contents());
  EXPECT_EQ(made.download(device(), little.view(), std::nullopt).chunks, 1U);
  array const more{101};
  EXPECT_EQ(made.upload(more.view(), device(), std::nullopt, true).chunks, 1U);
}

TEST_F(ring_direct, are_not_used_for_device_memory_that_the_host_can_read) {
  array const from{100};
  ring made{0, with_direct(101)};
  hostrt::protect_device_memory(false);
  device_buffer const there{100, 0};
  hostrt::protect_device_memory(true);
  std::memcpy(reinterpret_cast<void*>(there.address()), from.contents().data(), 100);
  EXPECT_EQ(made.upload({there.address(), 1, {100}, {1}}, device(), std::nullopt, true).chunks, 1U);
  EXPECT_EQ(on_device(100), from.contents());
}

TEST_F(ring_direct, leave_uploads_of_a_few_chunks_to_the_driver) {
  for (auto const direct_bytes : {std::size_t{0}, std::size_t{101}}) {
    ring made{0, with_direct(direct_bytes)};
    array const few{4 * chunk};
    auto const taken = made.upload(few.view(), device(), std::nullopt, true);
    EXPECT_EQ(taken.chunks, direct_bytes == 0 ? 4U : 0U);
    EXPECT_EQ(on_device(4 * chunk), few.contents());
    array const more{4 * chunk + 1};
    EXPECT_EQ(made.upload(more.view(), device(), std::nullopt, true).chunks, 5U);
    EXPECT_EQ(made.download(device(), few.view(), std::nullopt).chunks, 4U);
  }
}

TEST_F(ring_direct, are_not_used_while_the_device_has_earlier_work) {
  array const little{100};
  ring made{0, with_direct(101)};
  stream const own{0};
  gate held{own.view(), 60};
  EXPECT_EQ(made.upload(little.view(), device(), own.view(), false).chunks, 1U);
  std::thread opening{[&] {
    await_calls("cudaMemcpyAsync", 2);
    held.open();
  }};
  EXPECT_EQ(made.upload(little.view(), device(), own.view(), true).chunks, 1U);
  opening.join();
}

/// Uploads on the caller's own stream.
class ring_at_once : public ring_direct {
 protected:
  [[nodiscard]] bool sent(ring& through, array const& from, stream_view on) const {
    return through.upload_at_once(from.view(), device(), on);
  }

  stream own_{0};
};

TEST_F(ring_at_once, arrive_on_the_stream_and_leave_the_array_to_the_caller) {
  ring made{0, settings};
  gate held{own_.view(), 60};
  auto const expected = random_bytes(size, 31);
  {
    array const from{size, 31};
    ASSERT_TRUE(sent(made, from, own_.view()));
  }
  EXPECT_NE(on_device(size), expected);  // behind the stream's earlier work
  held.open();
  synchronize_device(0);
  EXPECT_EQ(on_device(size), expected);
  EXPECT_EQ(count_of("cudaMemcpyAsync"), 0);
}

TEST_F(ring_at_once, gather_an_array_that_is_not_contiguous) {
  ring made{0, settings};
  array const from{4, {50, 3}, {-40, 8}, 33};
  ASSERT_TRUE(sent(made, from, own_.view()));
  synchronize_device(0);
  EXPECT_EQ(on_device(600), from.contents());
}

TEST_F(ring_at_once, do_not_wait_for_the_transfers_of_the_ring) {
  ring made{0, settings};
  hostrt::stall("cudaMemcpyAsync", 1, 60);
  std::thread other{
      [&] { static_cast<void>(made.upload(source().view(), device(), std::nullopt, true)); }};
  await_calls("cudaMemcpyAsync", 1);
  device_buffer const there{100, 0};
  array const from{100, 32};
  EXPECT_TRUE(made.upload_at_once(from.view(), there.address(), own_.view()));
  EXPECT_EQ(cudaStreamSynchronize(own_.handle()), cudaSuccess);
  EXPECT_EQ(std::memcmp(inside(there.address()), from.memory().data(), 100), 0);
  hostrt::release_stalls();
  other.join();
}

TEST_F(ring_at_once, without_a_stream_have_arrived_and_wait_for_no_other_work) {
  ring made{0, settings};
  gate held{own_.view(), 60};
  array const from{100, 36};
  hostrt::stall("cuMemcpyHtoDAsync", 1, 60);
  EXPECT_TRUE(made.upload_at_once(from.view(), device(), std::nullopt));
  hostrt::release_stalls();
  made.await_at_once();
  EXPECT_EQ(on_device(100), from.contents());
  held.open();
}

TEST_F(ring_at_once, without_a_stream_can_be_interrupted) {
  ring made{0, settings};
  hostrt::stall("cuMemcpyHtoDAsync", 1, 60);
  EXPECT_TRUE(made.upload_at_once(array{100}.view(), device(), std::nullopt));
  EXPECT_THROW(made.await_at_once([] { return true; }), cancelled_error);
  hostrt::release_stalls();
}

TEST_F(ring_at_once, uploads_of_the_ring_without_a_stream_have_a_wait_too) {
  ring made{0, settings};
  array const from{100};
  hostrt::stall("cudaMemcpyAsync", 1, 60);
  made.upload(from.view(), device(), std::nullopt, false);
  EXPECT_THROW(made.await_uploads([] { return true; }), cancelled_error);
  hostrt::release_stalls();
  made.await_uploads();
  EXPECT_EQ(on_device(100), from.contents());
  made.close();
  made.await_uploads();
}

TEST_F(ring_at_once, are_refused_where_the_ring_is_needed) {
  ring made{0, settings};
  array const little{100};
  EXPECT_FALSE(sent(made, array{ring::most_at_once + 1}, own_.view()));
  host_buffer const locked{100, memory_kind::pinned, 0};
  EXPECT_FALSE(made.upload_at_once(all_of(locked), device(), own_.view()));
  made.close();
  EXPECT_FALSE(sent(made, little, own_.view()));
  made.await_at_once();
  hostrt::set_attribute(cudaDevAttrPageableMemoryAccess, 1);
  ring reading{0, settings};
  EXPECT_FALSE(sent(reading, little, own_.view()));
  EXPECT_EQ(count_of("cuMemcpyHtoDAsync"), 0);
}

TEST_F(ring_at_once, of_no_bytes_make_no_copy) {
  ring made{0, settings};
  EXPECT_TRUE(made.upload_at_once({0, 1, {0}, {1}}, 0, own_.view()));
  EXPECT_EQ(count_of("cuMemcpyHtoDAsync"), 0);
}

TEST_F(ring_at_once, are_refused_on_a_stream_that_is_captured) {
  ring made{0, settings};
  ASSERT_EQ(cudaStreamBeginCapture(own_.handle(), cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_THROW(static_cast<void>(sent(made, array{100}, own_.view())), std::invalid_argument);
  cudaGraph_t graph{};
  EXPECT_EQ(cudaStreamEndCapture(own_.handle(), &graph), cudaSuccess);
}

TEST_F(ring_at_once, throw_the_error_of_the_copy) {
  ring made{0, settings};
  hostrt::fail("cuMemcpyHtoDAsync", 1, cudaErrorInvalidValue);
  EXPECT_THROW(static_cast<void>(sent(made, array{100}, own_.view())), cuda_error);
  EXPECT_TRUE(sent(made, array{100}, own_.view()));
}

TEST_F(ring_at_once, download_after_the_earlier_work_of_the_stream) {
  ring made{0, settings};
  array const from{size, 34};
  gate held{own_.view(), 60};
  ASSERT_TRUE(sent(made, from, own_.view()));
  std::thread opening{[&] {
    await_calls("cuStreamQuery", 5);
    held.open();
  }};
  array const to{size, 35};
  EXPECT_TRUE(made.download_at_once(device(), to.view(), own_.view()));
  opening.join();
  EXPECT_EQ(to.memory(), from.memory());
  EXPECT_EQ(count_of("cudaMemcpyAsync"), 0);
}

TEST_F(ring_at_once, refuse_downloads_for_which_the_ring_is_needed) {
  ring made{0, settings};
  array const rows{1, {10, 10}, {20, 1}};
  EXPECT_FALSE(made.download_at_once(device(), rows.view(), own_.view()));
  array const large{ring::most_at_once + 1};
  EXPECT_FALSE(made.download_at_once(device(), large.view(), own_.view()));
  host_buffer const locked{100, memory_kind::pinned, 0};
  EXPECT_FALSE(made.download_at_once(device(), all_of(locked), own_.view()));
  EXPECT_TRUE(made.download_at_once(0, {0, 1, {0}, {1}}, own_.view()));
  made.close();
  EXPECT_FALSE(made.download_at_once(device(), array{100}.view(), own_.view()));
  EXPECT_EQ(count_of("cuMemcpyDtoHAsync"), 0);
}

TEST_F(ring_at_once, end_the_wait_of_a_download_when_it_is_interrupted_or_closed) {
  ring made{0, settings};
  array const to{100};
  gate held{own_.view(), 60};
  EXPECT_THROW(static_cast<void>(
                   made.download_at_once(device(), to.view(), own_.view(), [] { return true; })),
               cancelled_error);
  std::thread closing{[&, asked = count_of("cuStreamQuery")] {
    await_calls("cuStreamQuery", asked + 5);
    made.close();
  }};
  EXPECT_THROW(static_cast<void>(made.download_at_once(device(), to.view(), own_.view())),
               cancelled_error);
  held.open();  // the release of page-locked memory waits for the device
  closing.join();
}

TEST_F(ring_direct, continue_after_every_failure) {
  host_buffer const locked{size, memory_kind::pinned, 0};
  ring made{0, settings};
  stream const own{0};
  expect_usable_after_every_failure(made, 12, [&] {
    for (int i = 0; i < 5; ++i) {
      static_cast<void>(made.upload(source().view(), device(), own.view(), false));
      static_cast<void>(made.upload(all_of(locked), device(), own.view(), true));
    }
  });
}

}  // namespace
}  // namespace pyxfer::tests
