#include "ring/chunk_mover.hpp"

#include "copy/gate.hpp"
#include "cuda/memory.hpp"
#include "ring_support.hpp"

#include <optional>
#include <thread>

namespace pyxfer::tests {
namespace {

constexpr ring_settings settings{1, 4096, 3, fill_kind::streaming, 0};
constexpr std::size_t size = 10 * 4096 + 100;

/// Returns when copies have been polled that many times more.
void await_queries(long more) {
  auto const wanted = count_of("cuEventQuery") + more;
  while (count_of("cuEventQuery") < wanted) { std::this_thread::yield(); }
}

/// Work that a test ends, and the event behind it.
struct late_work {
  late_work() { begins.record(other.view()); }

  stream other{0};
  gate held{other.view(), 60};
  event begins{0};
};

/// A chunk mover, an array, and device memory, which the host runtime lets the test read.
class ring_chunk_mover : public engine_test {
 protected:
  void SetUp() override {
    engine_test::SetUp();
    slots_.emplace(settings.pinned_bytes(), memory_kind::pinned, 0);
    device_.emplace(size, 0);
    made_.emplace(0, slots_->address(), settings, converting);
  }
  void TearDown() override {
    made_.reset();
    device_.reset();
    slots_.reset();
    engine_test::TearDown();
  }

  conversion_kernels converting{0};

  [[nodiscard]] chunk_mover& made() { return *made_; }
  [[nodiscard]] array& source() { return source_; }
  [[nodiscard]] std::atomic<bool>& cancelled() { return cancelled_; }
  [[nodiscard]] std::uintptr_t address() const { return device_->address(); }
  [[nodiscard]] bytes on_device() const {
    auto const* const first = inside(device_->address());
    return {first, first + size};
  }
  void put_on_device(bytes const& contents) {
    std::memcpy(inside(device_->address()), contents.data(), contents.size());
  }

  /// Moves all of the array, and waits for it.
  void work(direction way, event const* begins = nullptr) {
    auto const view = source_.view();
    staging_request const request{way, view, device_->address(), begins, std::nullopt, true};
    transfer shared{request, {size, settings}, fill_kernel_of(settings.fill).copy, cancelled_};
    made_->prepare(shared, shared.plan().chunks());
    made_->run_as_crew(shared);
    static_cast<void>(made_->finish(shared, false));
  }

 private:
  array source_{size};
  std::atomic<bool> cancelled_{false};
  std::optional<host_buffer> slots_;
  std::optional<device_buffer> device_;
  std::optional<chunk_mover> made_;
};

TEST_F(ring_chunk_mover, uploads_every_chunk) {
  work(direction::h2d);
  EXPECT_TRUE(made().wait(60, nullptr));
  EXPECT_EQ(on_device(), source().contents());
  EXPECT_EQ(made().totals().chunks, 11U);
  EXPECT_EQ(made().totals().copies, static_cast<std::size_t>(count_of("cudaMemcpyAsync")));
  EXPECT_LE(made().totals().copies, 11U);
  EXPECT_GT(made().totals().filled_s, 0);
}

TEST_F(ring_chunk_mover, downloads_every_chunk) {
  auto const contents = random_bytes(size, 5);
  put_on_device(contents);
  work(direction::d2h);
  EXPECT_EQ(source().contents(), contents);
  EXPECT_EQ(made().totals().chunks, 11U);
}

TEST_F(ring_chunk_mover, the_caller_empties_slots_if_the_crew_does_not_wake_in_time) {
  constexpr ring_settings many{8, 4096, 16, fill_kind::streaming, 0};
  host_buffer const slots{many.pinned_bytes(), memory_kind::pinned, 0};
  chunk_mover alone{0, slots.address(), many, converting};
  auto const contents = random_bytes(size, 6);
  put_on_device(contents);
  auto const view = source().view();
  staging_request const request{direction::d2h, view, address(), nullptr, std::nullopt, true};
  transfer shared{request, {size, many}, fill_kernel_of(many.fill).copy, cancelled()};
  ASSERT_TRUE(shared.plan().is_attended());
  alone.prepare(shared, shared.plan().chunks());
  EXPECT_TRUE(alone.run_as_caller(shared, false));
  EXPECT_EQ(source().contents(), contents);
  EXPECT_EQ(alone.totals().chunks, 11U);
  EXPECT_EQ(alone.totals().threads, 1);
  alone.close();
}

TEST_F(ring_chunk_mover, counts_each_transfer_separately) {
  work(direction::h2d);
  auto const first = made().totals();
  work(direction::h2d);
  EXPECT_EQ(made().totals().chunks, first.chunks);
  EXPECT_LE(made().totals().copies, 11U);
}

TEST_F(ring_chunk_mover, begins_a_download_while_an_upload_is_under_way) {
  for (int i = 0; i < 20; ++i) {
    work(direction::h2d);
    auto const sent = source().contents();
    source() = array{size, static_cast<unsigned int>(100 + i)};
    work(direction::d2h);
    EXPECT_EQ(source().contents(), sent);
    source() = array{size, static_cast<unsigned int>(200 + i)};
  }
}

TEST_F(ring_chunk_mover, fills_no_slot_that_the_device_still_reads) {
  late_work earlier;
  std::thread working{[&] { work(direction::h2d, &earlier.begins); }};
  while (count_of("cudaMemcpyAsync") < settings.slots) { std::this_thread::yield(); }
  await_queries(20);
  EXPECT_EQ(count_of("cudaMemcpyAsync"), settings.slots);
  earlier.held.open();
  working.join();
  EXPECT_TRUE(made().wait(60, nullptr));
  EXPECT_EQ(on_device(), source().contents());
  EXPECT_GT(made().totals().waited_s, 0);
}

TEST_F(ring_chunk_mover, issues_copies_to_all_slots_before_it_empties_the_first) {
  late_work earlier;
  std::thread working{[&] { work(direction::d2h, &earlier.begins); }};
  await_queries(20);
  EXPECT_EQ(count_of("cudaMemcpyAsync"), settings.slots);
  earlier.held.open();
  working.join();
  EXPECT_EQ(source().contents(), on_device());
}

TEST_F(ring_chunk_mover, returns_if_it_is_cancelled_while_it_waits) {
  for (auto const way : {direction::h2d, direction::d2h}) {
    cancelled() = false;
    late_work earlier;
    std::thread working{[&] { work(way, &earlier.begins); }};
    await_queries(20);
    cancelled() = true;
    working.join();
    EXPECT_LT(made().totals().chunks, 11U);
    earlier.held.open();
    EXPECT_TRUE(made().wait(60, nullptr));
  }
}

/// Of twelve slots of a mebibyte an upload cycles through eight, and a download through all.
TEST_F(ring_chunk_mover, changes_the_slots_it_cycles_through_after_earlier_copies_have_ended) {
  constexpr std::size_t mib = std::size_t{1} << 20U;
  constexpr ring_settings wide{1, mib, 12, fill_kind::streaming, 0};
  host_buffer const slots{wide.pinned_bytes(), memory_kind::pinned, 0};
  device_buffer const there{3 * mib, 0};
  array const sent{mib};  // one copy, so that more could be under way
  array const back{3 * mib, 2};
  chunk_mover own{0, slots.address(), wide, converting};
  std::atomic<bool> never{false};
  auto const move = [&](direction way, array const& host, bool wait) {
    auto const view = host.view();
    staging_request const request{way, view, there.address(), nullptr, std::nullopt, wait};
    transfer shared{request, {view.bytes(), wide}, fill_kernel_of(wide.fill).copy, never};
    own.prepare(shared, shared.plan().chunks());
    EXPECT_TRUE(own.run_as_caller(shared, wait));
  };
  hostrt::stall("cudaMemcpyAsync", 1, 60);
  move(direction::h2d, sent, false);
  auto const issued = count_of("cudaMemcpyAsync");
  std::thread downloading{[&] { move(direction::d2h, back, true); }};
  auto const asked = count_of("cuEventQuery");
  while (count_of("cudaMemcpyAsync") == issued && count_of("cuEventQuery") < asked + 20) {
    std::this_thread::yield();
  }
  EXPECT_EQ(count_of("cudaMemcpyAsync"), issued);
  hostrt::release_stalls();
  downloading.join();
  EXPECT_EQ(std::memcmp(back.memory().data(), sent.memory().data(), mib), 0);
  own.close();
}

/// The event of a copy is used again for the third one after it.
TEST_F(ring_chunk_mover, has_at_most_three_copies_under_way) {
  constexpr ring_settings many{1, 4096, 12, fill_kind::streaming, 0};
  host_buffer const slots{many.pinned_bytes(), memory_kind::pinned, 0};
  chunk_mover own{0, slots.address(), many, converting};
  auto const view = source().view();
  staging_request const request{direction::h2d, view, address(), nullptr, std::nullopt, true};
  for (auto const direct : {false, true}) {
    SCOPED_TRACE(direct);
    transfer shared{request, {size, many}, fill_kernel_of(many.fill).copy, cancelled()};
    hostrt::reset();
    hostrt::stall("cudaMemcpyAsync", 1, 60);
    std::thread working{[&] {
      own.prepare(shared, direct ? 0 : shared.plan().chunks());
      EXPECT_TRUE(direct ? own.copy_direct(shared, true, 4096) : own.run_as_caller(shared, true));
    }};
    while (count_of("cudaMemcpyAsync") < 3) { std::this_thread::yield(); }
    await_queries(20);
    EXPECT_EQ(count_of("cudaMemcpyAsync"), 3);
    hostrt::release_stalls();
    working.join();
    EXPECT_EQ(on_device(), source().contents());
  }
  own.close();
}

std::atomic<bool>* stopped = nullptr;

/// A fill during which the transfer is cancelled.
void fill_and_cancel(void* to, void const* from, std::size_t count) {
  std::memcpy(to, from, count);
  *stopped = true;
}

TEST_F(ring_chunk_mover, issues_no_copy_of_a_stopped_transfer) {
  stopped = &cancelled();
  auto const view = source().view();
  staging_request const request{direction::h2d, view, address(), nullptr, std::nullopt, true};
  transfer shared{request, {size, settings}, fill_and_cancel, cancelled()};
  made().prepare(shared, shared.plan().chunks());
  made().run_as_crew(shared);
  EXPECT_EQ(made().totals().chunks, 1U);  // it is in its slot, ready to be copied
  EXPECT_FALSE(made().finish(shared, true));
  EXPECT_FALSE(made().copy_direct(shared, true));
  EXPECT_EQ(count_of("cudaMemcpyAsync"), 0);
}

TEST_F(ring_chunk_mover, lets_a_stream_wait_for_it) {
  stream const later{0};
  event after{0};
  late_work earlier;
  std::thread working{[&] { work(direction::h2d, &earlier.begins); }};
  while (count_of("cudaMemcpyAsync") < settings.slots) { std::this_thread::yield(); }
  cancelled() = true;
  working.join();
  made().hold(later.view());
  after.record(later.view());
  EXPECT_FALSE(after.passed());
  earlier.held.open();
  EXPECT_TRUE(wait_for(after, 60));
}

TEST_F(ring_chunk_mover, settles_copies_whose_event_was_not_recorded) {
  hostrt::fail("cuEventRecord", 2, cudaErrorNotSupported);
  hostrt::stall("cudaMemcpyAsync", 2, 60);
  EXPECT_THROW(work(direction::h2d), cuda_error);
  EXPECT_TRUE(made().wait(60, nullptr));  // waits for the first copy's event, the only one
  made().settle();
  EXPECT_FALSE(made().wait(0, nullptr));
  hostrt::release_stalls();
  EXPECT_TRUE(made().wait(60, nullptr));
  work(direction::h2d);
  EXPECT_TRUE(made().wait(60, nullptr));
  EXPECT_EQ(on_device(), source().contents());
}

TEST_F(ring_chunk_mover, fills_no_slot_of_a_copy_whose_event_was_not_recorded) {
  hostrt::fail("cuEventRecord", 1, cudaErrorNotSupported);
  hostrt::stall("cudaMemcpyAsync", 1, 60);
  EXPECT_THROW(work(direction::h2d), cuda_error);
  std::thread working{[&] { work(direction::h2d); }};
  await_queries(20);
  EXPECT_EQ(count_of("cudaMemcpyAsync"), 1);
  hostrt::release_stalls();
  working.join();
  EXPECT_TRUE(made().wait(60, nullptr));
  EXPECT_EQ(on_device(), source().contents());
}

TEST_F(ring_chunk_mover, returns_whether_it_became_idle_in_time) {
  hostrt::stall("cudaMemcpyAsync", 11, 60);
  work(direction::h2d);
  EXPECT_FALSE(made().await_idle(0.02));
  hostrt::release_stalls();
  EXPECT_TRUE(made().await_idle(60));
}

}  // namespace
}  // namespace pyxfer::tests
