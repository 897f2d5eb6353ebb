#include "copy/bench.hpp"
#include "cuda/bracket.hpp"
#include "cuda/memory.hpp"
#include "cuda/stream.hpp"

#include "engine_support.hpp"
#include "fork_support.hpp"

#include <cstddef>
#include <functional>
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
  std::size_t count = 0;
  for (int round = 0; round < 100; ++round) {
    auto made = TypeParam::make();
    count += this->made().size();
    std::thread other{[&] { EXPECT_NO_THROW(made.close()); }};
    EXPECT_NO_THROW(made.close());
    other.join();
  }
  EXPECT_EQ(released(), count);
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

/// Stands for a pointer. `meanwhile` is called once when a null one is made, which an owner does
/// between any two steps of its close.
struct watched_handle {
  watched_handle() = default;
  explicit watched_handle(int value) : number{value} {}
  watched_handle(std::nullptr_t /*null*/) {  // NOLINT(google-explicit-constructor): as a pointer's
    if (meanwhile) { std::exchange(meanwhile, nullptr)(); }
  }
  friend bool operator==(watched_handle one, std::nullptr_t /*null*/) { return one.number == 0; }

  static inline std::function<void()> meanwhile;
  static inline int released{0};
  int number{0};
};

class watched_owner : public owned_handle<watched_handle> {
 public:
  watched_owner()
      : owned_handle{0, [](watched_handle taken) { watched_handle::released += taken.number; }} {
    own(watched_handle{1});
  }
};

TEST_F(cuda_owned_handle, is_released_by_one_of_two_threads) {
  watched_handle::released = 0;
  watched_owner made;
  watched_handle::meanwhile = [&] { std::thread{[&] { made.close(); }}.join(); };
  made.close();
  EXPECT_EQ(watched_handle::released, 1);
}

}  // namespace
}  // namespace pyxfer::tests
