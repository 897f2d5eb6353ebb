#include "copy/bench.hpp"
#include "cuda/bracket.hpp"
#include "cuda/memory.hpp"
#include "cuda/stream.hpp"

#include "engine_support.hpp"
#include "fork_support.hpp"

#include <atomic>
#include <thread>
#include <type_traits>
#include <utility>

namespace pyxfer::tests {
namespace {

// How the owners of each kind are made.
struct of_stream {
  static stream make() { return stream{0}; }
};
struct of_event {
  static event make() { return event{0}; }
};
struct of_device_memory {
  static device_buffer make() { return {100, 0}; }
};
template <memory_kind Kind>
struct of_host_memory {
  static host_buffer make() { return {100, Kind, 0}; }
};
struct of_registration {
  static registration make() {
    static std::array<char, 100> memory{};
    return {reinterpret_cast<std::uintptr_t>(memory.data()), memory.size(), 0};
  }
};
struct of_bracket {
  static bracket make() { return bracket{0}; }
};
struct of_bench {
  static bench make() { return {0, 3, patience{1}}; }
};

constexpr std::array release_calls{"cudaStreamDestroy", "cuEventDestroy", "cudaFree",
                                   "cudaFreeHost", "cudaHostUnregister"};

std::size_t released() {
  long count = 0;
  for (auto const* const call : release_calls) { count += count_of(call); }
  return static_cast<std::size_t>(count);
}

/// Lets two threads close an owner, one a little later than the other, until `all` rounds are over.
template <typename Make>
void close_from_two_threads(rounds& all, Make const& make) {
  using owner = decltype(make());
  std::atomic<owner*> shared{nullptr};
  std::atomic<int> finished{0};
  std::atomic<bool> over{false};
  std::atomic<int> failed{0};
  auto const close = [&](owner& closed) {
    try {
      closed.close();
    } catch (cuda_error const&) { ++failed; }
  };
  std::thread other{[&] {
    for (int looks = 0; !over; ++looks) {
      if (auto* const given = shared.exchange(nullptr)) {
        close(*given);
        ++finished;
        looks = 0;
      } else if (looks > 10'000) {
        std::this_thread::yield();
      }
    }
  }};
  while (all.another()) {
    auto closed = make();
    shared = &closed;
    for (std::atomic<int> i{0}; i < all.begun() % 64; ++i) {}
    close(closed);
    while (finished != all.begun()) { std::this_thread::yield(); }
  }
  over = true;
  other.join();
  EXPECT_EQ(failed, 0);
}

/// What every owner does.
template <typename Kind>
class cuda_owner : public engine_test {};

using kinds =
    ::testing::Types<of_stream, of_event, of_device_memory, of_host_memory<memory_kind::pinned>,
                     of_host_memory<memory_kind::registered>,
                     of_host_memory<memory_kind::write_combined>, of_registration, of_bracket,
                     of_bench>;
TYPED_TEST_SUITE(cuda_owner, kinds);

TYPED_TEST(cuda_owner, releases_everything_once_after_a_move) {
  std::size_t count = 0;
  {
    auto first = TypeParam::make();
    count = this->made().size();
    auto const second = std::move(first);
    EXPECT_EQ(this->made().size(), count);
  }
  EXPECT_GT(count, 0U);
  EXPECT_EQ(released(), count);
}

TYPED_TEST(cuda_owner, closes_once) {
  auto made = TypeParam::make();
  auto const count = this->made().size();
  made.close();
  EXPECT_EQ(released(), count);
  auto const calls = hostrt::calls();
  made.close();
  EXPECT_EQ(hostrt::calls(), calls);
}

TYPED_TEST(cuda_owner, releases_everything_once_if_two_threads_close_it) {
  auto const count = [this] {
    auto const made = TypeParam::make();
    return this->made().size();
  }();
  hostrt::reset();
  rounds all{300};
  close_from_two_threads(all, TypeParam::make);
  EXPECT_EQ(released(), count * static_cast<std::size_t>(all.begun()));
}

TYPED_TEST(cuda_owner, reports_every_failure_and_leaves_nothing) {
  expect_every_failure_reported([] { auto const made = TypeParam::make(); });
  expect_every_failure_reported([] { TypeParam::make().close(); });
}

TYPED_TEST(cuda_owner, is_closed_if_a_release_fails) {
  auto made = TypeParam::make();
  for (auto const* const call : release_calls) { hostrt::fail(call, 1, cudaErrorNotSupported); }
  EXPECT_THROW(made.close(), cuda_error);
  EXPECT_TRUE(this->made().empty());
  static_cast<void>(take_cleanup_failures());  // of a second call that failed
  EXPECT_NO_THROW(made.close());
}

TYPED_TEST(cuda_owner, notes_a_lost_device_and_closes) {
  {
    auto const made = TypeParam::make();
    hostrt::lose_device(cudaErrorLaunchFailure);
  }
  EXPECT_FALSE(take_cleanup_failures().empty());
  EXPECT_TRUE(this->made().empty());
}

TYPED_TEST(cuda_owner, makes_no_call_after_abandon) {
  if constexpr (!std::is_same_v<TypeParam, of_bracket>) {  // which cannot be abandoned
    auto const before = live();
    {
      auto made = TypeParam::make();
      made.abandon();
    }
    EXPECT_EQ(released(), 0U);
    EXPECT_FALSE(this->made().empty());
    this->release_all_but(before);
  }
}

TYPED_TEST(cuda_owner, of_a_parent_releases_nothing_in_a_forked_child) {
  auto made = TypeParam::make();
  auto const calls_of_child = in_forked_child([&] {
    hostrt::reset();
    made.close();
    std::string found;
    for (auto const& [call, count] : hostrt::calls()) { found += call + " "; }
    for (auto const& note : take_cleanup_failures()) { found += note + " "; }
    return found;
  });
  EXPECT_EQ(calls_of_child, "");
}

TYPED_TEST(cuda_owner, cannot_be_made_in_a_forked_child) {
  static_cast<void>(TypeParam::make());
  auto const text = in_forked_child(
      [] { return text_of<forked_error>([] { auto const made = TypeParam::make(); }); });
  EXPECT_EQ(text.rfind("This process was forked after", 0), 0U) << text;
}

TYPED_TEST(cuda_owner, does_not_change_the_callers_context) {
  hostrt::set_device_count(2);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  { auto const made = TypeParam::make(); }
  int current = -1;
  ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 1);
}

using cuda_owned_handle = engine_test;

/// Owns a number, and adds one to it when it is released.
class owned_number : public owned_handle<std::atomic<int>*> {
 public:
  explicit owned_number(std::atomic<int>& number)
      : owned_handle{0, [](std::atomic<int>* taken) { ++*taken; }} {
    own(&number);
  }
};

/// Quick rounds, so that in some of them both threads are in `close` at the same instant.
TEST_F(cuda_owned_handle, is_released_by_one_of_two_threads) {
  std::atomic<int> number{0};
  rounds all{100'000};
  close_from_two_threads(all, [&] { return owned_number{number}; });
  EXPECT_EQ(number, all.begun());
}

}  // namespace
}  // namespace pyxfer::tests
