#include "cuda/process.hpp"

#include "cuda/device.hpp"
#include "cuda/memory.hpp"
#include "engine_support.hpp"
#include "fork_support.hpp"

#include <iostream>

namespace pyxfer::tests {
namespace {

using cuda_process = engine_test;

TEST_F(cuda_process, can_continue_to_use_cuda) {
  note_process();
  EXPECT_NO_THROW(note_process());
  EXPECT_TRUE(same_process());
}

TEST_F(cuda_process, is_another_one_after_a_fork) {
  note_process();
  EXPECT_EQ(in_forked_child([] { return std::string{same_process() ? "same" : "another"}; }),
            "another");
}

TEST_F(cuda_process, that_was_forked_gets_an_error_with_advice) {
  note_process();
  EXPECT_EQ(in_forked_child([] { return text_of<forked_error>(note_process); }),
            "This process was forked after its parent had used CUDA, and CUDA does not survive a "
            "fork. Start workers with multiprocessing.get_context(\"spawn\"), or use pyxfer only "
            "after the fork.");
}

TEST_F(cuda_process, that_was_forked_cannot_ask_for_anything) {
  note_process();
  auto const uses = {
      std::function<void()>{[] { static_cast<void>(device_count()); }},
      std::function<void()>{[] { static_cast<void>(properties_of(0)); }},
      std::function<void()>{[] { static_cast<void>(memory_info(0)); }},
      std::function<void()>{[] { synchronize_device(0); }},
      std::function<void()>{[] { device_guard const guard{0}; }},
  };
  for (auto const& use : uses) {
    auto const text = in_forked_child([&] { return text_of<forked_error>(use); });
    EXPECT_EQ(text.rfind("This process was forked after", 0), 0U) << text;
  }
}

TEST_F(cuda_process, that_was_forked_unmaps_its_copies_of_pages) {
  host_buffer pageable{std::size_t{1} << 20U, memory_kind::pageable, 0};
  note_process();
  auto const text = in_forked_child([&] {
    pageable.close();
    return std::string{pageable.address() == 0 ? "closed" : "open"};
  });
  EXPECT_EQ(text, "closed");
}

/// The first process that uses CUDA is noted once, so this needs its own process.
TEST(cuda_process_at_first, can_be_a_forked_child_if_its_parent_did_not_use_cuda) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto const fork_and_use = [] {
    std::cerr << in_forked_child([] {
      note_process();
      return std::string{same_process() ? "used in the child" : "refused"};
    });
    std::_Exit(0);
  };
  EXPECT_EXIT(fork_and_use(), ::testing::ExitedWithCode(0), "used in the child");
}

}  // namespace
}  // namespace pyxfer::tests
