#include "cuda/device.hpp"
#include "cuda/memory.hpp"
#include "cuda/process.hpp"
#include "fork_support.hpp"
#include "ring/ring.hpp"
#include "ring_support.hpp"
#include "slow_allocations.hpp"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

/// Threads use rings at random. PYXFER_STRESS_S is the number of seconds, and PYXFER_STRESS_UPLOADS
/// the number of uploads that each of two threads starts.
namespace pyxfer::tests {
namespace {

constexpr std::size_t chunk = 4096;
constexpr std::size_t most_bytes = 96 * chunk + 123;

/// Rings that threads use while others close and replace them.
class shared_rings {
 public:
  explicit shared_rings(std::mt19937 random) : random_{random} {
    for (auto& replaced : rings_) { replaced = make(); }
  }
  [[nodiscard]] std::shared_ptr<ring> any() {
    std::scoped_lock const held{lock_};
    return rings_.at(random_() % rings_.size());
  }
  /// Replaces a ring by a new one, and returns it.
  [[nodiscard]] std::shared_ptr<ring> replace() {
    std::scoped_lock const held{lock_};
    auto& place = rings_.at(random_() % rings_.size());
    auto fresh = make();
    return std::exchange(place, std::move(fresh));
  }

 private:
  std::shared_ptr<ring> make() {
    auto const threads = 1 + static_cast<int>(random_() % 9);
    auto const slots = 2 + static_cast<int>(random_() % 30);
    auto const fill = fill_kernels().at(random_() % fill_kernels().size()).kind;
    std::size_t const direct = random_() % 2 == 0 ? 0 : 3 * chunk;
    ring_settings const made{threads, chunk, slots, fill, static_cast<int>(random_() % 50), direct};
    return std::make_shared<ring>(0, made);
  }

  std::mutex lock_;
  std::mt19937 random_;
  std::array<std::shared_ptr<ring>, 3> rings_;
};

/// Counts the outcomes of transfers. A wrong one fails the test.
struct outcomes {
  std::atomic<long> right{0};
  std::atomic<long> wrong{0};
  std::atomic<long> cancelled{0};
  std::atomic<long> failed{0};
  std::atomic<long> refused{0};
};

/// One thread's arrays, memory and choices.
class user {
 public:
  user(shared_rings& rings, outcomes& found, unsigned int seed)
      : rings_{rings}, found_{found}, random_{seed} {}

  void act() {
    switch (random_() % 40) {
      case 0: rings_.any()->cancel(); return;
      case 1: replace_a_ring(); return;
      case 2: hostrt::fail(any_call(), 1 + below(5), cudaErrorNotSupported); return;
      case 3: hostrt::stall("cudaMemcpyAsync", 1 + below(5), 1e-3); return;
      case 4: hostrt::stall("cuEventQuery", 1 + below(50), 1e-4); return;
      case 5: fork_a_child(); return;
      default: transfer(); return;
    }
  }

 private:
  static std::string any_call(std::size_t number) {
    static std::array<char const*, 5> const calls{"cudaMemcpyAsync", "cuEventRecord",
                                                  "cuEventQuery", "cuStreamWaitEvent",
                                                  "cudaPointerGetAttributes"};
    return calls.at(number % calls.size());
  }
  std::string any_call() { return any_call(random_()); }
  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned int>(limit)); }

  void replace_a_ring() {
    std::shared_ptr<ring> old;
    try {
      old = rings_.replace();
      old->close(random_() % 4 == 0 ? 0 : 30);
    } catch (cuda_error const&) { ++found_.failed; } catch (timeout_error const&) {
      ++found_.refused;
    }
  }

  /// The child's transfer is refused. It must not hang on locks that the parent's threads held.
  void fork_a_child() {
    auto const used = rings_.any();
    auto const text = in_forked_child([&] {
      array const source{chunk};
      return text_of<forked_error>([&] {
        static_cast<void>(used->upload(source.view(), to_.address(), std::nullopt, true));
      });
    });
    if (text.rfind("This process was forked", 0) != 0) { ++found_.wrong; }
  }

  void transfer() {
    auto const used = rings_.any();
    auto const kind = random_() % 5;
    array const host = random_() % 3 == 0
                           ? random_array(static_cast<unsigned int>(random_()), 9)
                           : array{random_() % most_bytes, static_cast<unsigned int>(random_())};
    auto const after = random_() % 2 == 0 ? std::optional{own_.view()} : std::nullopt;
    try {
      switch (kind) {
        case 0: upload(*used, host, after, true); break;
        case 1: upload(*used, host, after, false); break;
        case 2: start(*used, host, after); break;
        case 3: move_directly(*used, own_.view()); break;
        default: download(*used, host, after); break;
      }
    } catch (cancelled_error const&) { ++found_.cancelled; } catch (cuda_error const&) {
      ++found_.failed;
    } catch (std::logic_error const&) { ++found_.refused; }
    settle();
  }

  /// Uploads and downloads page-locked memory, without the slots.
  void move_directly(ring& used, stream_view after) {
    auto const bytes = 1 + random_() % most_bytes;
    layout const all{locked_.address(), 1, {static_cast<std::ptrdiff_t>(bytes)}, {1}};
    auto const sent = random_bytes(bytes, static_cast<unsigned int>(random_()));
    auto* const here = reinterpret_cast<void*>(locked_.address());
    std::memcpy(here, sent.data(), bytes);
    static_cast<void>(used.upload(all, to_.address(), after, false));
    std::memset(here, 0, bytes);
    static_cast<void>(used.download(to_.address(), all, after));
    judge(std::memcmp(here, sent.data(), bytes) == 0);
  }
  void upload(ring& used, array const& host, std::optional<stream_view> after, bool wait) {
    static_cast<void>(used.upload(host.view(), to_.address(), after, wait));
    auto const sent = host.contents();
    std::memset(const_cast<unsigned char*>(host.memory().data()), 0, host.memory().size());
    if (!wait) { settle(); }
    judge(std::memcmp(memory(), sent.data(), sent.size()) == 0);
  }
  void start(ring& used, array const& host, std::optional<stream_view> after) {
    auto const started = used.start_upload(host.view(), to_.address(), after);
    if (random_() % 8 == 0) { used.cancel(); }
    static_cast<void>(started.result(60));
    auto const sent = host.contents();
    judge(std::memcmp(memory(), sent.data(), sent.size()) == 0);
  }
  void download(ring& used, array const& host, std::optional<stream_view> after) {
    auto const wanted = random_bytes(host.contents().size(), static_cast<unsigned int>(random_()));
    if (!wanted.empty()) { std::memcpy(memory(), wanted.data(), wanted.size()); }
    static_cast<void>(used.download(to_.address(), host.view(), after));
    judge(host.contents() == wanted);
  }
  void judge(bool is_right) { ++(is_right ? found_.right : found_.wrong); }

  [[nodiscard]] void* memory() const { return inside(to_.address()); }

  /// Waits for the copies of the last transfer, because its arrays are freed next.
  static void settle() {
    while (true) {
      try {
        synchronize_device(0);
        return;
      } catch (cuda_error const&) {  // NOLINT(bugprone-empty-catch): ordered by another thread
      }
    }
  }

  shared_rings& rings_;
  outcomes& found_;
  std::mt19937 random_;
  stream own_{0};
  device_buffer to_{most_bytes + 1, 0};
  host_buffer locked_{most_bytes, memory_kind::pinned, 0};
};

using ring_stress = engine_test;

TEST_F(ring_stress, moves_every_byte_correctly_beside_other_threads) {
  auto const seconds = number_from("PYXFER_STRESS_S", 1);
  ::alarm(static_cast<unsigned int>(seconds) + 120);
  outcomes found;
  {
    shared_rings rings{std::mt19937{7}};
    slow_allocations const slow;
    auto const until = now_s() + seconds;
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (unsigned int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        user own{rings, found, i + 1};
        while (now_s() < until) { own.act(); }
        hostrt::reset();
      });
    }
    for (auto& thread : threads) { thread.join(); }
    hostrt::reset();
  }
  std::cerr << found.right << " transfers right, " << found.failed << " failed, " << found.cancelled
            << " cancelled, " << found.refused << " refused\n";
  EXPECT_EQ(found.wrong, 0);
  EXPECT_GT(found.right, 10);
  static_cast<void>(take_cleanup_failures());
}

/// Like two data loaders of one program, for training and for validation.
TEST_F(ring_stress, serves_two_threads_that_start_uploads) {
  auto const uploads = static_cast<int>(number_from("PYXFER_STRESS_UPLOADS", 1000));
  ::alarm(600);
  ring made{0, {2, chunk, 4, fill_kind::streaming, 0}};
  slow_allocations const slow;
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  threads.reserve(2);
  for (unsigned int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      device_buffer const to{2 * chunk, 0};
      array const source{2 * chunk, i + 1};
      auto const sent = source.contents();
      for (int n = 0; n < uploads; ++n) {
        static_cast<void>(made.start_upload(source.view(), to.address(), std::nullopt).result(60));
        done += std::memcmp(inside(to.address()), sent.data(), sent.size()) == 0;
      }
    });
  }
  for (auto& thread : threads) { thread.join(); }
  EXPECT_EQ(done, 2 * uploads);
}

}  // namespace
}  // namespace pyxfer::tests
