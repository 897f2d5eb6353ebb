#pragma once

#include "cuda/device.hpp"
#include "cuda/memory.hpp"
#include "ring/ring.hpp"
#include "ring_support.hpp"

#include <optional>
#include <thread>

namespace pyxfer::tests {

/// An array and device memory for it, for tests of rings under errors.
class ring_trouble : public engine_test {
 protected:
  static constexpr std::size_t chunk = 4096;
  static constexpr std::size_t size = 12 * chunk;
  static constexpr ring_settings settings{3, chunk, 2, fill_kind::streaming, 0};
  /// A cancelled transfer that takes longer waits for a device that hangs for a minute.
  static constexpr double soon_s = 30;

  void SetUp() override {
    engine_test::SetUp();
    memory_.emplace(size, 0);
  }
  void TearDown() override {
    hostrt::reset();
    memory_.reset();
    engine_test::TearDown();
  }

  [[nodiscard]] std::uintptr_t device() const { return memory_->address(); }
  [[nodiscard]] array const& source() const { return source_; }
  [[nodiscard]] bool has_arrived(std::size_t count = size) const {
    return std::memcmp(inside(device()), source_.memory().data(), count) == 0;
  }
  void upload(ring& through) const {
    static_cast<void>(through.upload(source_.view(), device(), std::nullopt, true));
  }
  [[nodiscard]] ticket start_upload(ring& through) const {
    return through.start_upload(source_.view(), device(), std::nullopt);
  }
  /// Every kind of transfer.
  void use(ring& through) const {
    stream const own{0};
    array const target{size, 2};
    static_cast<void>(through.upload(source_.view(), device(), own.view(), false));
    static_cast<void>(through.upload(source_.view(), device(), own.view(), true));
    static_cast<void>(through.download(device(), target.view(), own.view()));
    static_cast<void>(through.start_upload(source_.view(), device(), own.view()).result(60));
  }
  /// Uploads other contents, downloads them again, and compares them.
  void expect_usable(ring& through) {
    array const fresh{size, ++seed_};
    array const target{size, 2};
    static_cast<void>(through.upload(fresh.view(), device(), std::nullopt, true));
    static_cast<void>(through.download(device(), target.view(), std::nullopt));
    EXPECT_EQ(target.contents(), fresh.contents());
  }
  /// Of each call that `transfer` makes, the first few fail, one at a time.
  void expect_usable_after_every_failure(ring& through, long most,
                                         std::function<void()> const& transfer) {
    hostrt::reset();
    transfer();
    for (auto const& [call, count] : hostrt::calls()) {
      if (only_explains(call)) { continue; }
      for (int nth = 1; nth <= std::min(count, most); ++nth) {
        expect_failure_reported(transfer, call, nth);
        hostrt::reset();
        synchronize_device(0);  // an upload may have succeeded, and is not waited for
        expect_usable(through);
      }
    }
  }

 private:
  array source_{size};
  unsigned int seed_{10};
  std::optional<device_buffer> memory_;
};

inline void await_calls(std::string const& call, long count) {
  await([&] { return count_of(call) >= count; });
}

/// Cancels after a number of copies were issued, and notes the time.
class canceller {
 public:
  canceller(ring& of, long copies)
      : thread_{[&of, copies, this] {
          await_calls("cudaMemcpyAsync", copies);
          at_s_ = now_s();
          of.cancel();
        }} {}
  /// Seconds since the cancellation.
  [[nodiscard]] double join() {
    auto const now = now_s();
    thread_.join();
    return now - at_s_;
  }

 private:
  double at_s_{};
  std::thread thread_;
};

}  // namespace pyxfer::tests
