#include "cuda/registration.hpp"

#include "engine_support.hpp"
#include "fork_support.hpp"

#include <sys/mman.h>

#include <cstring>
#include <utility>
#include <vector>

namespace pyxfer::tests {
namespace {

constexpr std::size_t some = 5000;

class cuda_registration : public engine_test {
 protected:
  [[nodiscard]] std::uintptr_t address() const {
    return reinterpret_cast<std::uintptr_t>(memory_.data());
  }

 private:
  std::vector<char> memory_ = std::vector<char>(some, 7);
};

TEST_F(cuda_registration, locks_memory_in_place_and_is_released_once) {
  {
    registration first{address(), some, 0};
    registration const second{std::move(first)};
    EXPECT_EQ(second.address(), address());
    EXPECT_EQ(second.size(), some);
    EXPECT_EQ(made(), std::vector<std::string>{"registered " + std::to_string(address())});
  }
  EXPECT_EQ(count_of("cudaHostUnregister"), 1);
  EXPECT_EQ(*reinterpret_cast<char const*>(address()), 7);
}

TEST_F(cuda_registration, closes_once) {
  registration made{address(), some, 0};
  made.close();
  made.close();
  EXPECT_EQ(count_of("cudaHostUnregister"), 1);
}

TEST_F(cuda_registration, of_no_memory_is_refused) {
  EXPECT_EQ(text_of<std::invalid_argument>([] { registration const none{0, some, 0}; }),
            "memory to lock needs an address and at least one byte");
  EXPECT_THROW((registration{address(), 0, 0}), std::invalid_argument);
}

TEST_F(cuda_registration, reports_memory_that_is_already_locked) {
  registration const first{address(), some, 0};
  try {
    registration const second{address() + 8, 16, 0};
    FAIL() << "it was locked twice";
  } catch (cuda_error const& error) {
    EXPECT_EQ(error.code(), cudaErrorHostMemoryAlreadyRegistered);
  }
}

TEST_F(cuda_registration, locks_read_only_memory_for_reading) {
  auto* const pages = ::mmap(nullptr, some, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  auto const mapped = reinterpret_cast<std::uintptr_t>(pages);
  {
    registration const locked{mapped, some, 0, false};
    EXPECT_EQ(made(), std::vector<std::string>{"registered " + std::to_string(mapped)});
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
  EXPECT_EQ(::munmap(pages, some), 0);
}

TEST_F(cuda_registration, never_locks_writeable_memory_only_for_reading) {
  hostrt::fail("cudaHostRegister", 1, cudaErrorInvalidValue);
  EXPECT_THROW((registration{address(), some, 0}), cuda_error);
  EXPECT_EQ(count_of("cudaHostRegister"), 1);
}

TEST_F(cuda_registration, does_not_retry_after_another_error) {
  hostrt::fail("cudaHostRegister", 1, cudaErrorMemoryAllocation);
  EXPECT_THROW((registration{address(), some, 0, false}), memory_error);
  EXPECT_EQ(count_of("cudaHostRegister"), 1);
}

TEST_F(cuda_registration, reports_every_failure_and_leaves_nothing) {
  expect_every_failure_reported([this] { registration const made{address(), some, 0}; });
  expect_every_failure_reported([this] { registration{address(), some, 0}.close(); });
}

TEST_F(cuda_registration, makes_no_call_after_abandon) {
  {
    registration made{address(), some, 0};
    made.abandon();
  }
  EXPECT_EQ(count_of("cudaHostUnregister"), 0);
  EXPECT_EQ(cudaHostUnregister(reinterpret_cast<void*>(address())), cudaSuccess);
}

TEST_F(cuda_registration, is_not_released_by_a_forked_child) {
  registration made{address(), some, 0};
  EXPECT_EQ(in_forked_child([&] {
              made.close();
              return std::to_string(count_of("cudaHostUnregister"));
            }),
            "0");
}

}  // namespace
}  // namespace pyxfer::tests
