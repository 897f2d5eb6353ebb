#include "copy/bench.hpp"
#include "cuda/bracket.hpp"
#include "cuda/device_buffer.hpp"
#include "cuda/event.hpp"
#include "cuda/host_buffer.hpp"
#include "cuda/registration.hpp"
#include "cuda/stream.hpp"

#include "engine_support.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

namespace pyxfer::tests {
namespace {

/// Closes each of several owners from two threads at once. Returns how many there were.
template <typename Owner>
int close_from_two_threads(int most, std::function<std::unique_ptr<Owner>()> const& make) {
  std::unique_ptr<Owner> closed;
  std::atomic<int> round{0};
  std::atomic<int> finished{0};
  std::atomic<int> failed{0};
  auto const close = [&] {
    try {
      closed->close();
    } catch (cuda_error const&) { ++failed; }
  };
  std::atomic<bool> over{false};
  std::thread other{[&] {
    while (!over) {
      if (round == finished) {
        std::this_thread::yield();
        continue;
      }
      close();
      ++finished;
    }
  }};
  rounds all{most};
  while (all.another()) {
    closed = make();
    ++round;
    close();
    while (finished != round) { std::this_thread::yield(); }
  }
  over = true;
  other.join();
  EXPECT_EQ(failed, 0);
  return all.begun();
}

using cuda_owners = engine_test;

TEST_F(cuda_owners, of_device_memory_free_it_once_when_two_threads_close_them) {
  auto const count = close_from_two_threads<device_buffer>(
      20000, [] { return std::make_unique<device_buffer>(100, 0); });
  EXPECT_EQ(count_of("cudaFree"), count);
}

TEST_F(cuda_owners, of_host_memory_free_it_once_when_two_threads_close_them) {
  auto const count = close_from_two_threads<host_buffer>(
      5000, [] { return std::make_unique<host_buffer>(100, memory_kind::pinned, 0); });
  EXPECT_EQ(count_of("cudaFreeHost"), count);
}

TEST_F(cuda_owners, of_mapped_memory_unlock_it_once_when_two_threads_close_them) {
  auto const count = close_from_two_threads<host_buffer>(
      5000, [] { return std::make_unique<host_buffer>(100, memory_kind::registered, 0); });
  EXPECT_EQ(count_of("cudaHostUnregister"), count);
}

TEST_F(cuda_owners, of_a_registration_unlock_it_once_when_two_threads_close_them) {
  std::array<char, 100> memory{};
  auto const address = reinterpret_cast<std::uintptr_t>(memory.data());
  auto const count = close_from_two_threads<registration>(
      5000, [&] { return std::make_unique<registration>(address, memory.size(), 0); });
  EXPECT_EQ(count_of("cudaHostUnregister"), count);
}

TEST_F(cuda_owners, of_a_stream_destroy_it_once_when_two_threads_close_them) {
  auto const count =
      close_from_two_threads<stream>(500, [] { return std::make_unique<stream>(0); });
  EXPECT_EQ(count_of("cudaStreamDestroy"), count);
}

TEST_F(cuda_owners, of_an_event_destroy_it_once_when_two_threads_close_them) {
  auto const count = close_from_two_threads<event>(5000, [] { return std::make_unique<event>(0); });
  EXPECT_EQ(count_of("cuEventDestroy"), count);
}

TEST_F(cuda_owners, of_several_destroy_each_once_when_two_threads_close_them) {
  auto const count =
      close_from_two_threads<bracket>(200, [] { return std::make_unique<bracket>(0); });
  EXPECT_EQ(count_of("cuEventDestroy"), 2 * count);
  EXPECT_EQ(count_of("cudaStreamDestroy"), count);
}

TEST_F(cuda_owners, of_a_bench_destroy_each_once_when_two_threads_close_them) {
  auto const count = close_from_two_threads<bench>(
      200, [] { return std::make_unique<bench>(0, 1, patience{1.0}); });
  EXPECT_EQ(count_of("cudaStreamDestroy"), count);
  EXPECT_EQ(count_of("cuEventDestroy"), count * static_cast<long>(bench::own_marks + 1));
}

}  // namespace
}  // namespace pyxfer::tests
