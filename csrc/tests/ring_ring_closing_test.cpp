#include "fork_support.hpp"
#include "ring_trouble_support.hpp"

#include <iostream>
#include <stdexcept>

namespace pyxfer::tests {
namespace {

using ring_closing = ring_trouble;

TEST_F(ring_closing, makes_the_ring_refuse_transfers) {
  ring made{0, settings};
  made.close();
  made.close();
  EXPECT_EQ(text_of<std::logic_error>([&] { upload(made); }),
            "the ring is closed: make another one");
  EXPECT_THROW(static_cast<void>(start_upload(made)), std::logic_error);
}

TEST_F(ring_closing, waits_for_running_and_started_transfers) {
  ring made{0, settings};
  hostrt::stall("cudaMemcpyAsync", 1, 60);
  std::thread uploading{[&] { upload(made); }};
  await_calls("cudaMemcpyAsync", 1);
  auto const started = start_upload(made);
  std::atomic<int> closed{0};
  std::vector<std::thread> closing;
  closing.reserve(2);
  for (int i = 0; i < 2; ++i) {
    closing.emplace_back([&] {
      made.close();
      ++closed;
    });
  }
  EXPECT_EQ(closed, 0);
  hostrt::release_stalls();
  uploading.join();
  for (auto& thread : closing) { thread.join(); }
  EXPECT_EQ(started.result(0).chunks, size / chunk);
  EXPECT_TRUE(has_arrived());
}

TEST_F(ring_closing, can_be_tried_again_if_the_device_still_uses_the_slots) {
  stream const own{0};
  ring made{0, settings};
  hostrt::stall("cudaMemcpyAsync", size / chunk, 60);
  static_cast<void>(made.upload(source().view(), device(), own.view(), false));
  EXPECT_EQ(text_of<timeout_error>([&] { made.close(0.02); }),
            "The device did not finish the copies of a ring within 0.02 s. Another program may "
            "hold it, or it has hung: look at nvidia-smi and for Xid in dmesg.");
  EXPECT_EQ(count_of("cudaFreeHost"), 0);
  hostrt::release_stalls();
  made.close();
  EXPECT_EQ(count_of("cudaFreeHost"), 1);
}

/// The upload is inside the driver, where it cannot be cancelled.
TEST_F(ring_closing, waits_for_transfers_no_longer_than_its_patience) {
  ring made{0, settings};
  hostrt::stall("cudaPointerGetAttributes", 1, 60);
  std::thread uploading{[&] { EXPECT_THROW(upload(made), cancelled_error); }};
  await_calls("cudaPointerGetAttributes", 1);
  auto const waiting = start_upload(made);
  made.cancel();
  EXPECT_THROW(static_cast<void>(waiting.result(0)), cancelled_error);
  EXPECT_THROW(made.close(0.02), timeout_error);
  hostrt::release_stalls();
  uploading.join();
  made.close();
}

/// Memory that the device may still read must not be freed because a query failed.
TEST_F(ring_closing, asks_again_after_a_failed_query_of_the_device) {
  for (auto const* const question : {"cudaStreamQuery", "cuCtxGetCurrent"}) {
    SCOPED_TRACE(question);
    stream const own{0};
    ring made{0, settings};
    hostrt::reset();
    hostrt::stall("cudaMemcpyAsync", size / chunk, 60);
    static_cast<void>(made.upload(source().view(), device(), own.view(), false));
    for (auto const patience_s : {0.02, 0.0}) {  // with none it does not ask again
      hostrt::fail(question, 1, cudaErrorNotSupported);
      EXPECT_THROW(made.close(patience_s), timeout_error);
      EXPECT_EQ(take_cleanup_failures().size(), 1U);
      EXPECT_EQ(count_of("cudaFreeHost"), 0);
    }
    hostrt::release_stalls();
    made.close();
    EXPECT_EQ(count_of("cudaFreeHost"), 1);
  }
}

TEST_F(ring_closing, waits_for_a_copy_without_an_event) {
  stream const own{0};
  auto made = std::make_unique<ring>(0, settings);
  upload(*made);
  hostrt::stall("cudaMemcpyAsync", 1, 60);
  for (int nth = 1; nth <= 8; ++nth) {  // the copies of all threads, and those after the error
    hostrt::fail("cuEventRecord", nth, cudaErrorNotSupported);
  }
  EXPECT_THROW(upload(*made), cuda_error);
  EXPECT_FALSE(take_cleanup_failures().empty());
  EXPECT_THROW(made->close(0.02), timeout_error);
  EXPECT_EQ(count_of("cudaFreeHost"), 0);
  hostrt::release_stalls();
  made->close();
}

TEST_F(ring_closing, releases_nothing_in_a_forked_child) {
  auto made = std::make_unique<ring>(0, settings);
  upload(*made);
  auto const texts = in_forked_child([&] {
    array const target{size, 2};
    auto const refused = {
        text_of<forked_error>([&] { upload(*made); }),
        text_of<forked_error>(
            [&] { static_cast<void>(made->download(device(), target.view(), std::nullopt)); }),
        text_of<forked_error>([&] { static_cast<void>(start_upload(*made)); }),
    };
    hostrt::reset();
    made->cancel();
    made->abandon();
    made->close();
    made.reset();
    std::string made_calls;
    for (auto const& text : refused) { made_calls += text.substr(0, 23) + ". "; }
    for (auto const& [call, count] : hostrt::calls()) { made_calls += call + " "; }
    for (auto const& note : take_cleanup_failures()) { made_calls += note + " "; }
    return made_calls;
  });
  EXPECT_EQ(texts, "This process was forked. This process was forked. This process was forked. ");
  expect_usable(*made);
}

/// A ring that is not released stays to the end of the process, so this needs its own process.
TEST_F(ring_closing, leaves_the_slots_to_a_device_that_hangs_when_the_ring_is_destroyed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto const destroy = [this] {
    hostrt::stall("cudaMemcpyAsync", size / chunk, 60);
    {
      stream const own{0};
      ring made{0, settings, 0.02};
      static_cast<void>(made.upload(source().view(), device(), own.view(), false));
    }
    auto const notes = take_cleanup_failures();
    std::cerr << notes.size() << ' ' << count_of("cudaFreeHost") << ' '
              << count_of("cuEventDestroy");
    hostrt::release_stalls();
    std::_Exit(0);
  };
  EXPECT_EXIT(destroy(), ::testing::ExitedWithCode(0), "1 0 0");
}

/// For the same reason.
TEST_F(ring_closing, does_not_need_the_device_to_abandon_a_ring) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto const abandon = [this] {
    hostrt::stall("cudaMemcpyAsync", 1, 60);
    auto made = std::make_unique<ring>(0, settings);
    auto const first = start_upload(*made);
    auto const second = start_upload(*made);
    await_calls("cudaMemcpyAsync", 1);
    made->abandon();
    for (auto const& started : {first, second}) {
      std::cerr << text_of<cancelled_error>([&] { static_cast<void>(started.result(60)); }) << ". ";
    }
    std::cerr << text_of<std::logic_error>([&] { upload(*made); }) << ". ";
    made->close();
    made.reset();
    std::cerr << count_of("cudaFreeHost") + count_of("cudaStreamDestroy");
    hostrt::release_stalls();
    std::_Exit(0);
  };
  EXPECT_EXIT(abandon(), ::testing::ExitedWithCode(0),
              "cancelled during an upload. cancelled before the transfer began. "
              "the ring is closed: make another one. 0");
}

}  // namespace
}  // namespace pyxfer::tests
