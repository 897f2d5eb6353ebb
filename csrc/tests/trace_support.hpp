#pragma once

#include "engine_support.hpp"
#include "hostrt/activity.hpp"
#include "trace/cupti_records.hpp"
#include "trace/library.hpp"
#include "trace/tracer.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pyxfer::trace::tests {

using pyxfer::tests::engine_test;
using pyxfer::tests::text_of;

inline constexpr std::size_t much = std::size_t{1} << 20U;

inline std::int64_t steady_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds{1};
}

inline std::vector<std::string> all_words() { return {kind_words.begin(), kind_words.end()}; }

/// The host runtime's library with some functions replaced, or hidden if null.
inline candidate host_library(std::map<std::string, void*> const& replaced = {},
                              std::string const& name = "the host runtime") {
  return {name, [replaced] {
            return symbol_finder{[replaced](char const* symbol) {
              auto const found = replaced.find(symbol);
              return found == replaced.end() ? hostrt::activity_function(symbol) : found->second;
            }};
          }};
}

inline cupti::functions host_functions(std::map<std::string, void*> const& replaced = {}) {
  return open(host_library(replaced)).call;
}

template <typename Function>
void* address_of(Function function) {
  return reinterpret_cast<void*>(function);
}

inline std::vector<record> of_kind(taken const& found, record_kind kind) {
  std::vector<record> chosen;
  std::copy_if(found.records.begin(), found.records.end(), std::back_inserter(chosen),
               [&](record const& row) { return row.kind == kind; });
  return chosen;
}

inline std::vector<std::string> names_of(taken const& found, record_kind kind) {
  std::vector<std::string> names;
  for (auto const& row : of_kind(found, kind)) { names.push_back(found.names.at(row.name)); }
  return names;
}

/// Checks that CUPTI is not in use before and after a test.
class trace_test : public engine_test {
 protected:
  void TearDown() override {
    EXPECT_EQ(hostrt::enabled_kinds().load(), 0U) << "something is still being recorded";
    engine_test::TearDown();
  }

  static tracer host_tracer(std::vector<std::string> const& kinds = all_words(),
                            std::size_t capacity_bytes = much) {
    return tracer{{host_library()}, kinds, capacity_bytes};
  }
};

/// Memory on the host and on the device, and blocking copies between them.
class copied_memory {
 public:
  explicit copied_memory(std::size_t bytes) : host_(bytes) {
    EXPECT_EQ(cudaMalloc(&device_, bytes), cudaSuccess);
  }
  ~copied_memory() { EXPECT_EQ(cudaFree(device_), cudaSuccess); }
  copied_memory(copied_memory const&) = delete;
  copied_memory& operator=(copied_memory const&) = delete;
  copied_memory(copied_memory&&) = delete;
  copied_memory& operator=(copied_memory&&) = delete;

  void copy(int times = 1) {
    for (int i = 0; i < times; ++i) {
      EXPECT_EQ(cudaMemcpy(host_.data(), device_, host_.size(), cudaMemcpyDeviceToHost),
                cudaSuccess);
    }
  }

 private:
  std::vector<std::byte> host_;
  void* device_ = nullptr;
};

}  // namespace pyxfer::trace::tests
