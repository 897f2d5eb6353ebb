#include "ring/conversion.hpp"

#include "copy/gate.hpp"
#include "cuda/device.hpp"
#include "cuda/memory.hpp"
#include "cuda/stream.hpp"
#include "ring_trouble_support.hpp"

#include <cuda_runtime_api.h>

#include <cstring>
#include <optional>

namespace pyxfer::tests {
namespace {

/// Doubles that become floats, or bytes that become floats, in 3 x 5 x `pixels` items.
class ring_conversion : public ring_trouble {
 protected:
  static constexpr std::ptrdiff_t rows = 3;
  static constexpr std::ptrdiff_t columns = 5;
  static constexpr std::ptrdiff_t pixels = 173;
  static constexpr std::size_t items = rows * columns * pixels;

  void SetUp() override {
    ring_trouble::SetUp();
    crossed_.emplace(items * 8 + 64, 0);
    result_.emplace(items * 8 + 64, 0);
    std::memset(inside(result_->address()), 0x5A, items * 8 + 64);
  }
  void TearDown() override {
    hostrt::reset();
    crossed_.reset();
    result_.reset();
    ring_trouble::TearDown();
  }

  [[nodiscard]] conversion casting(item_kind from, item_kind to, bool on_host) const {
    return {from, to, on_host, {}, result_->address()};
  }
  /// The last axis becomes the first.
  [[nodiscard]] conversion permuting(conversion by) const {
    by.order.axes = 2;
    by.order.extents = {rows * columns, pixels};
    by.order.strides = {1, rows * columns};
    return by;
  }
  [[nodiscard]] std::uintptr_t crossing(conversion const& by) const {
    return by.has_kernel() ? crossed_->address() : result_->address();
  }
  static array source_of(item_kind kind, bool contiguous = true) {
    auto const size = static_cast<std::ptrdiff_t>(bytes_of(kind));
    auto const gap = contiguous ? 0 : size;
    auto const row = pixels * size + gap;
    return {size, {rows, columns, pixels}, {columns * row, row, size}, 7};
  }
  [[nodiscard]] static bytes expected(array const& from, conversion const& by) {
    auto const contents = from.contents();
    auto const size = bytes_of(by.to);
    bytes cast(items * size);
    if (by.from == by.to) {
      cast = contents;
    } else {
      plain_cast(by.from, by.to)(cast.data(), contents.data(), items);
    }
    if (by.order.axes == 0) { return cast; }
    bytes moved(cast.size());
    for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
      for (std::size_t outer = 0; outer < rows * columns; ++outer) {
        std::memcpy(moved.data() + (pixel * rows * columns + outer) * size,
                    cast.data() + (outer * pixels + pixel) * size, size);
      }
    }
    return moved;
  }
  /// With zeros for what is not a number, whose bits may differ.
  static bytes numbers_of(bytes items, item_kind kind) {
    if (kind != item_kind::f32 && kind != item_kind::bf16) { return items; }
    for (std::size_t at = 0; at < items.size(); at += bytes_of(kind)) {
      auto const* const last = items.data() + at + bytes_of(kind) - 2;
      auto const is_special = (last[1] & 0x7FU) == 0x7F && (last[0] & 0x80U) != 0;
      if (is_special && (last[0] & 0x7FU) != 0) {
        std::memset(items.data() + at, 0, bytes_of(kind));
      }
    }
    return items;
  }
  void expect_arrived(array const& from, conversion const& by) const {
    auto const wanted = expected(from, by);
    auto const* const first = inside(result_->address());
    EXPECT_EQ(numbers_of({first, first + wanted.size()}, by.to), numbers_of(wanted, by.to));
    EXPECT_EQ(first[wanted.size()], 0x5A);
    std::memset(inside(result_->address()), 0x5A, items * 8 + 64);
  }
  void upload_and_check(ring& through, array const& from, conversion const& by) const {
    static_cast<void>(through.upload(from.view(), crossing(by), std::nullopt, true, {}, &by));
    expect_arrived(from, by);
  }
  /// Of each kind: by the host, by a kernel, and with a permutation.
  [[nodiscard]] std::vector<conversion> all() const {
    return {casting(item_kind::f64, item_kind::f32, true),
            casting(item_kind::f64, item_kind::f32, false),
            casting(item_kind::u8, item_kind::f32, false),
            permuting(casting(item_kind::u8, item_kind::f32, false)),
            permuting(casting(item_kind::f64, item_kind::bf16, true)),
            permuting(casting(item_kind::i16, item_kind::i16, false))};
  }

 private:
  std::optional<device_buffer> crossed_;
  std::optional<device_buffer> result_;
};

TEST_F(ring_conversion, arrives_from_any_array_by_the_host_or_a_kernel) {
  ring made{0, settings};
  for (auto const& by : all()) {
    for (auto const contiguous : {true, false}) {
      SCOPED_TRACE(std::string{word_of(by.from)} + " to " + word_of(by.to) +
                   (contiguous ? "" : ", not contiguous"));
      upload_and_check(made, source_of(by.from, contiguous), by);
    }
  }
}

TEST_F(ring_conversion, arrives_at_once_and_in_the_background) {
  ring made{0, settings};
  stream const own{0};
  for (auto const& by : all()) {
    auto const from = source_of(by.from, false);
    ASSERT_TRUE(made.upload_at_once(from.view(), crossing(by), own.view(), &by));
    EXPECT_EQ(cudaStreamSynchronize(own.handle()), cudaSuccess);
    expect_arrived(from, by);
    static_cast<void>(made.start_upload(from.view(), crossing(by), std::nullopt, by).result(60));
    expect_arrived(from, by);
  }
}

TEST_F(ring_conversion, holds_the_callers_later_work) {
  ring made{0, settings};
  stream const own{0};
  for (auto const& by : all()) {
    auto const from = source_of(by.from);
    hostrt::stall("cuLaunchKernel", 1, 0.01);
    static_cast<void>(made.upload(from.view(), crossing(by), own.view(), false, {}, &by));
    EXPECT_EQ(cudaStreamSynchronize(own.handle()), cudaSuccess);
    expect_arrived(from, by);
    hostrt::reset();
  }
}

TEST_F(ring_conversion, waits_for_the_callers_earlier_work) {
  ring made{0, settings};
  stream const own{0};
  auto const by = casting(item_kind::u8, item_kind::f32, false);
  auto const from = source_of(by.from);
  gate held{own.view(), 60};
  auto const started = made.start_upload(from.view(), crossing(by), own.view(), by);
  EXPECT_FALSE(started.done());
  EXPECT_EQ(*inside(by.result), 0x5A);
  held.open();
  static_cast<void>(started.result(60));
  expect_arrived(from, by);
}

TEST_F(ring_conversion, reads_page_locked_memory_directly) {
  ring made{0, settings};
  auto const by = casting(item_kind::u8, item_kind::f32, false);
  auto const from = source_of(by.from);
  host_buffer const locked{items, memory_kind::pinned, 0};
  std::memcpy(reinterpret_cast<void*>(locked.address()), from.contents().data(), items);
  layout const view{locked.address(), 1, {static_cast<std::ptrdiff_t>(items)}, {1}};
  auto const taken = made.upload(view, crossing(by), std::nullopt, true, {}, &by);
  EXPECT_EQ(taken.chunks, 0U);
  expect_arrived(from, by);
}

TEST_F(ring_conversion, of_nothing_launches_nothing) {
  ring made{0, settings};
  for (auto const& by : all()) {
    layout const nothing{0, static_cast<std::ptrdiff_t>(bytes_of(by.from)), {0, 3}, {0, 0}};
    static_cast<void>(made.upload(nothing, 0, std::nullopt, true, {}, &by));
    EXPECT_TRUE(made.upload_at_once(nothing, 0, std::nullopt, &by));
  }
  EXPECT_EQ(count_of("cuLaunchKernel"), 0);
}

TEST_F(ring_conversion, is_usable_after_every_failure) {
  ring made{0, settings};
  stream const own{0};
  for (auto const& by : all()) {
    auto const from = source_of(by.from);
    expect_usable_after_every_failure(made, 2, [&] {
      static_cast<void>(made.upload(from.view(), crossing(by), own.view(), false, {}, &by));
      static_cast<void>(made.upload_at_once(from.view(), crossing(by), own.view(), &by));
    });
    upload_and_check(made, from, by);
  }
}

TEST_F(ring_conversion, without_kernels_is_refused_before_a_copy) {
  ring made{0, settings};
  auto const by = casting(item_kind::u8, item_kind::f64, false);
  hostrt::fail("cuModuleLoadData", 1, cudaErrorUnsupportedPtxVersion);
  EXPECT_THROW(made.prepare(by), kernels_unavailable_error);
  hostrt::fail("cuModuleLoadData", 1, cudaErrorUnsupportedPtxVersion);
  EXPECT_THROW(upload_and_check(made, source_of(by.from), by), kernels_unavailable_error);
  EXPECT_EQ(count_of("cudaMemcpyAsync"), 0);
  hostrt::reset();
  upload_and_check(made, source_of(by.from), by);
}

TEST_F(ring_conversion, ends_when_it_is_cancelled) {
  ring made{0, settings};
  auto const by = casting(item_kind::u8, item_kind::f32, false);
  auto const from = source_of(by.from);
  hostrt::stall("cuLaunchKernel", 1, 60);
  auto const started = made.start_upload(from.view(), crossing(by), std::nullopt, by);
  await_calls("cuLaunchKernel", 1);
  made.cancel();
  EXPECT_THROW(static_cast<void>(started.result(soon_s)), cancelled_error);
  hostrt::release_stalls();
  synchronize_device(0);  // the kernel of the cancelled transfer reads the same memory
  upload_and_check(made, from, by);
  static_cast<void>(take_cleanup_failures());  // the copies of an upload without a stream
}

}  // namespace
}  // namespace pyxfer::tests
