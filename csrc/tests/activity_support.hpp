#pragma once

#include "hostrt/activity.hpp"
#include "hostrt_support.hpp"
#include "trace/cupti_records.hpp"

namespace pyxfer::hostrt::testing {

using cupti::activity_kind;
using cupti::result;

template <typename... Arguments>
result call_cupti(char const* symbol, Arguments... arguments) {
  auto* const function = activity_function(symbol);
  EXPECT_NE(function, nullptr) << symbol;
  return reinterpret_cast<result (*)(Arguments...)>(function)(arguments...);
}

inline constexpr std::size_t room = 4096;

/// The contents of the buffers that were handed over.
inline std::vector<std::byte>& handed_over() {
  static auto& bytes = *new std::vector<std::byte>;
  return bytes;
}

inline void lend(std::uint8_t** buffer, std::size_t* bytes, std::size_t* records) {
  *buffer = new std::uint8_t[room];
  *bytes = room;
  *records = 0;
}

inline void lend_none(std::uint8_t** buffer, std::size_t* bytes, std::size_t* records) {
  *buffer = nullptr;
  *bytes = 0;
  *records = 0;
}

// NOLINTNEXTLINE(readability-non-const-parameter): the signature is CUPTI's
inline void keep(CUcontext /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer,
                 std::size_t /*bytes*/, std::size_t valid_bytes) {
  auto const* const begin = reinterpret_cast<std::byte const*>(buffer);
  handed_over().insert(handed_over().end(), begin, begin + valid_bytes);
  delete[] buffer;
}

class hostrt_activity : public hostrt {
 protected:
  void SetUp() override {
    hostrt::SetUp();
    handed_over().clear();
    ASSERT_EQ(call_cupti("cuptiActivityRegisterCallbacks", lend, keep), result::success);
  }

  void TearDown() override {
    for (auto const kind : enabled_) (void)call_cupti("cuptiActivityDisable", kind);
    (void)call_cupti("cuptiActivityFlushAll", std::uint32_t{1});
    EXPECT_EQ(enabled_kinds().load(), 0U);
    hostrt::TearDown();
  }

  void enable(activity_kind kind) {
    ASSERT_EQ(call_cupti("cuptiActivityEnable", kind), result::success);
    enabled_.push_back(kind);
  }

  /// The records of that kind so far.
  template <typename Raw>
  std::vector<Raw> records(activity_kind kind) {
    EXPECT_EQ(call_cupti("cuptiActivityFlushAll", std::uint32_t{1}), result::success);
    std::vector<Raw> found;
    for (std::size_t at = 0; at < handed_over().size();) {
      auto const* const raw = reinterpret_cast<cupti::activity const*>(&handed_over()[at]);
      if (raw->kind == kind) found.push_back(*reinterpret_cast<Raw const*>(raw));
      auto const bytes = record_bytes(raw->kind);
      EXPECT_GT(bytes, 0U) << "a record of an unknown kind";
      if (bytes == 0) break;
      at += bytes;
    }
    return found;
  }

  std::vector<cupti::copy_activity> copies() {
    return records<cupti::copy_activity>(activity_kind::copy);
  }

 private:
  std::vector<activity_kind> enabled_;
};

}  // namespace pyxfer::hostrt::testing
