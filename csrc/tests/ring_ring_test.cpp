#include "ring/ring.hpp"

#include "copy/gate.hpp"
#include "cuda/device.hpp"
#include "cuda/memory.hpp"
#include "cuda/stream.hpp"
#include "cuda/wait.hpp"
#include "ring_support.hpp"

#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

namespace pyxfer::tests {
namespace {

using ring_ring = engine_test;

constexpr std::size_t chunk = 4096;
constexpr std::size_t most = 300 * chunk;

ring_settings with(int threads, std::size_t chunk_bytes = chunk) {
  return {threads, chunk_bytes, 2, fill_kind::streaming, 20};
}

bytes held_by(device_buffer const& memory, std::size_t count) {
  auto const* const first = inside(memory.address());
  return {first, first + count};
}

void put_into(device_buffer const& memory, bytes const& contents) {
  std::copy(contents.begin(), contents.end(), inside(memory.address()));
}

void expect_moved_both_ways(ring& through, device_buffer const& memory, array const& host) {
  auto const contents = host.contents();
  put_into(memory, bytes(contents.size() + 1, 0x5A));
  EXPECT_GT(through.upload(host.view(), memory.address(), std::nullopt, true).wall_s, 0);
  EXPECT_EQ(held_by(memory, contents.size()), contents);
  EXPECT_EQ(held_by(memory, contents.size() + 1).back(), 0x5A);
  auto const others = random_bytes(contents.size(), 77);
  put_into(memory, others);
  auto const expected = host.memory_with(others);
  EXPECT_GT(through.download(memory.address(), host.view(), std::nullopt).wall_s, 0);
  EXPECT_EQ(host.memory(), expected);
}

TEST_F(ring_ring, moves_every_size_with_every_number_of_threads) {
  device_buffer const memory{most + 2, 0};
  for (int threads = 1; threads <= 8; ++threads) {
    ring made{0, with(threads)};
    for (auto const size : {std::size_t{0}, std::size_t{1}, chunk - 1, chunk, chunk + 1,
                            7 * chunk + 13, most, most + 1}) {
      SCOPED_TRACE(std::to_string(size) + " bytes, threads: " + std::to_string(threads));
      expect_moved_both_ways(made, memory, array{size});
    }
  }
}

TEST_F(ring_ring, moves_any_array) {
  device_buffer const memory{std::size_t{4} << 20U, 0};
  ring made{0, with(3)};
  for (unsigned int seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    expect_moved_both_ways(made, memory, random_array(seed, 17));
  }
}

TEST_F(ring_ring, moves_large_arrays_in_growing_copies) {
  constexpr std::size_t much = (std::size_t{5} << 20U) + 1234;
  device_buffer const memory{much + 1, 0};
  ring made{0, with(2, std::size_t{512} << 10U)};
  expect_moved_both_ways(made, memory, array{much});
}

TEST_F(ring_ring, returns_statistics_of_a_transfer) {
  device_buffer const memory{most, 0};
  array const source{most};
  ring made{0, with(2)};
  auto const taken = made.upload(source.view(), memory.address(), std::nullopt, true);
  EXPECT_EQ(taken.chunks, most / chunk);
  EXPECT_TRUE(taken.threads == 1 || taken.threads == 2);
  EXPECT_GT(taken.filled_s, 0);
  EXPECT_LE(taken.filled_s + taken.waited_s, 2 * taken.wall_s);
}

TEST_F(ring_ring, wakes_no_thread_for_one_chunk) {
  device_buffer const memory{chunk, 0};
  array const source{chunk};
  ring made{0, with(8)};
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(made.upload(source.view(), memory.address(), std::nullopt, true).threads, 1);
  }
}

TEST_F(ring_ring, has_read_the_array_when_an_upload_returns) {
  device_buffer const memory{most, 0};
  hostrt::model_link({2e9, 0}, {0, 0});
  array const source{most};
  auto const contents = source.contents();
  stream const own{0};
  ring made{0, with(2)};
  static_cast<void>(made.upload(source.view(), memory.address(), own.view(), false));
  std::memset(const_cast<unsigned char*>(source.memory().data()), 0, most);
  EXPECT_EQ(cudaStreamSynchronize(own.handle()), cudaSuccess);
  EXPECT_EQ(held_by(memory, most), contents);
}

/// A stream that is blocked until the test opens the gate.
struct held_stream {
  stream own{0};
  gate held{own.view(), 60};
};

TEST_F(ring_ring, begins_after_the_work_of_the_callers_stream) {
  device_buffer const memory{2 * chunk, 0};
  put_into(memory, bytes(2 * chunk, 0x5A));
  array const source{2 * chunk};
  held_stream after;
  ring made{0, with(2)};
  static_cast<void>(made.upload(source.view(), memory.address(), after.own.view(), false));
  EXPECT_EQ(held_by(memory, 2 * chunk), bytes(2 * chunk, 0x5A));
  EXPECT_EQ(count_of("cuStreamWaitEvent"), 2);  // the copies for the stream, and it for them
  after.held.open();
  synchronize_device(0);
  EXPECT_EQ(held_by(memory, 2 * chunk), source.contents());
}

TEST_F(ring_ring, lets_the_callers_stream_wait_for_an_upload) {
  device_buffer const memory{4 * chunk, 0};
  array const source{4 * chunk};
  stream const own{0};
  event reached{0};
  ring made{0, {2, chunk, 8, fill_kind::streaming, 20}};  // room for all copies at once
  hostrt::stall("cudaMemcpyAsync", 1, 60);
  static_cast<void>(made.upload(source.view(), memory.address(), own.view(), false));
  reached.record(own.view());
  EXPECT_FALSE(reached.passed());
  hostrt::release_stalls();
  EXPECT_TRUE(wait_for(reached, 60));
  EXPECT_EQ(held_by(memory, 4 * chunk), source.contents());
}

TEST_F(ring_ring, downloads_the_results_of_the_callers_stream) {
  device_buffer const memory{4 * chunk, 0};
  auto const contents = random_bytes(4 * chunk, 9);
  array const target{4 * chunk};
  held_stream before;
  ring made{0, with(2)};
  std::thread opening{[&] {
    while (count_of("cudaMemcpyAsync") == 0) { std::this_thread::yield(); }
    put_into(memory, contents);
    before.held.open();
  }};
  static_cast<void>(made.download(memory.address(), target.view(), before.own.view()));
  opening.join();
  EXPECT_EQ(target.contents(), contents);
}

TEST_F(ring_ring, takes_the_legacy_default_stream_too) {
  device_buffer const memory{4 * chunk, 0};
  array const source{4 * chunk};
  stream_view const legacy{nullptr};
  ring made{0, with(2)};
  static_cast<void>(made.upload(source.view(), memory.address(), legacy, false));
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(held_by(memory, 4 * chunk), source.contents());
}

/// Like a thread of a program that uses CUDA only through the ring.
TEST_F(ring_ring, serves_a_thread_without_a_context_and_leaves_it_without_one) {
  device_buffer const memory{4 * chunk, 0};
  array const source{4 * chunk};
  array const target{4 * chunk};
  stream_view const legacy{nullptr};
  ring made{0, with(2)};
  CUcontext left = nullptr;
  std::thread other{[&] {
    static_cast<void>(made.upload(source.view(), memory.address(), legacy, false));
    static_cast<void>(made.download(memory.address(), target.view(), legacy));
    static_cast<void>(made.start_upload(source.view(), memory.address(), legacy).result(60));
    EXPECT_EQ(driver().cuCtxGetCurrent(&left), CUDA_SUCCESS);
  }};
  other.join();
  EXPECT_EQ(left, nullptr);
  EXPECT_EQ(target.contents(), source.contents());
}

TEST_F(ring_ring, serves_several_callers_at_once) {
  constexpr int callers = 4;
  ring made{0, with(3)};
  std::vector<std::thread> threads;
  threads.reserve(callers);
  std::atomic<int> right{0};
  for (int i = 0; i < callers; ++i) {
    threads.emplace_back([&, i] {
      device_buffer const memory{20 * chunk, 0};
      for (int n = 0; n < 10; ++n) {
        array const source{20 * chunk, static_cast<unsigned int>(10 * i + n)};
        array const target{20 * chunk};
        static_cast<void>(made.upload(source.view(), memory.address(), std::nullopt, n % 2 == 0));
        synchronize_device(0);
        static_cast<void>(made.download(memory.address(), target.view(), std::nullopt));
        right += source.contents() == target.contents() ? 1 : 0;
      }
    });
  }
  for (auto& thread : threads) { thread.join(); }
  EXPECT_EQ(right, callers * 10);
}

TEST_F(ring_ring, continues_a_started_upload) {
  device_buffer const memory{most, 0};
  array const source{most};
  held_stream after;
  ring made{0, with(3)};
  auto const started = made.start_upload(source.view(), memory.address(), after.own.view());
  // Long enough for the whole upload on a busy machine, if it did not wait.
  EXPECT_THROW(static_cast<void>(started.result(3)), timeout_error);
  after.held.open();
  EXPECT_EQ(started.result(60).chunks, most / chunk);
  EXPECT_TRUE(started.done());
  EXPECT_EQ(held_by(memory, most), source.contents());
}

TEST_F(ring_ring, runs_started_and_blocking_uploads_in_the_order_of_the_calls) {
  device_buffer const memory{most, 0};
  array const first{most, 1};
  array const second{most, 2};
  array const third{most, 3};
  ring made{0, with(3)};
  for (int i = 0; i < 5; ++i) {
    auto const one = made.start_upload(first.view(), memory.address(), std::nullopt);
    auto const two = made.start_upload(second.view(), memory.address(), std::nullopt);
    static_cast<void>(made.upload(third.view(), memory.address(), std::nullopt, true));
    EXPECT_TRUE(one.done());
    EXPECT_EQ(two.result(60).chunks, most / chunk);
    EXPECT_EQ(held_by(memory, most), third.contents());
  }
}

TEST_F(ring_ring, completes_a_started_upload_without_its_ticket) {
  device_buffer const memory{most, 0};
  array const source{most};
  {
    ring made{0, with(3)};
    static_cast<void>(made.start_upload(source.view(), memory.address(), std::nullopt));
  }
  EXPECT_EQ(held_by(memory, most), source.contents());
}

TEST_F(ring_ring, uses_no_processor_while_it_is_idle) {
  device_buffer const memory{most, 0};
  array const source{most};
  ring made{0, with(8)};
  static_cast<void>(made.upload(source.view(), memory.address(), std::nullopt, true));
  std::this_thread::sleep_for(std::chrono::milliseconds{5});  // longer than threads spin
  auto const before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds{200});
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.01);
}

/// The number of voluntary context switches of the threads of this process's crews.
long sleeps_of_crews() {
  long sleeps = 0;
  for (auto const& thread : std::filesystem::directory_iterator{"/proc/self/task"}) {
    std::string name;
    std::getline(std::ifstream{thread.path() / "comm"}, name);
    if (name != "pyxfer-crew") { continue; }
    std::ifstream status{thread.path() / "status"};
    for (std::string line; std::getline(status, line);) {
      constexpr std::string_view field{"voluntary_ctxt_switches:"};
      if (line.compare(0, field.size(), field) == 0) {
        sleeps += std::stol(line.substr(field.size()));
      }
    }
  }
  return sleeps;
}

TEST_F(ring_ring, leaves_the_processors_to_others_while_the_device_is_late) {
  constexpr int threads = 8;
  constexpr double nap_s = 500e-6;
  device_buffer const memory{most, 0};
  array const source{most};
  held_stream after;
  ring made{0, with(threads)};
  auto const begun_s = now_s();
  auto const before = sleeps_of_crews();
  long sleeps = 0;
  double waited_s = 0;
  std::thread opening{[&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{500});
    sleeps = sleeps_of_crews() - before;
    waited_s = now_s() - begun_s;
    after.held.open();
  }};
  static_cast<void>(made.upload(source.view(), memory.address(), after.own.view(), true));
  opening.join();
  // Even on a busy machine a thread has no time for more long naps than this. With the caller's
  // short naps it would have several times as many.
  EXPECT_GT(sleeps, 0);
  EXPECT_LE(static_cast<double>(sleeps), (threads - 1) * (waited_s / nap_s + 20));
}

TEST_F(ring_ring, refuses_invalid_settings) {
  EXPECT_EQ(text_of<std::invalid_argument>([] { ring const made{0, with(0)}; }),
            "a ring has 1 to 64 threads, and not 0");
}

TEST_F(ring_ring, refuses_a_destination_whose_items_overlap) {
  device_buffer const memory{chunk, 0};
  array const repeated{4, {3, 5}, {0, 4}};
  ring made{0, with(2)};
  EXPECT_THROW(static_cast<void>(made.download(memory.address(), repeated.view(), std::nullopt)),
               std::invalid_argument);
  EXPECT_EQ(text_of<std::invalid_argument>(
                [&] { static_cast<void>(made.upload(repeated.view(), 0, std::nullopt, true)); }),
            "a transfer needs the address of its memory on the device");
}

}  // namespace
}  // namespace pyxfer::tests
