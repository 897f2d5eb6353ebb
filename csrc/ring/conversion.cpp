#include "ring/conversion.hpp"

#include "cuda/cleanup.hpp"
#include "ring/fill.hpp"

#include <algorithm>
#include <vector>

namespace pyxfer {
namespace {

/// Items that are gathered at a time from an array that is not contiguous: they stay in the
/// nearest cache.
constexpr std::size_t gathered_bytes = std::size_t{16} << 10U;

}  // namespace

void read_converted(layout const& array, conversion const& by, std::size_t begin, std::size_t end,
                    void* to, cast_stores stores) {
  auto const cast = cast_of(by.from, by.to, stores);
  auto const from_bytes = bytes_of(by.from);
  auto const to_bytes = bytes_of(by.to);
  auto const first = begin / to_bytes;
  auto const last = end / to_bytes;
  if (array.is_contiguous()) {
    auto const source = array.address() + first * from_bytes;
    cast(to, reinterpret_cast<void const*>(source), last - first);
    return;
  }
  thread_local std::vector<unsigned char> gathered(gathered_bytes);
  auto const plain = fill_kernel_of(fill_kind::plain).copy;
  auto* target = static_cast<unsigned char*>(to);
  for (auto item = first; item != last;) {
    auto const next = std::min(last, item + gathered_bytes / from_bytes);
    array.read(item * from_bytes, next * from_bytes, gathered.data(), plain);
    cast(target, gathered.data(), next - item);
    target += (next - item) * to_bytes;
    item = next;
  }
}

void conversion_kernels::launch(conversion const& by, std::uintptr_t crossed, std::size_t begin,
                                std::size_t end, stream_view on) {
  auto const bytes = bytes_of(by.crossing());
  of(by).convert(crossed, by.result, by.order, begin / bytes, (end - begin) / bytes, on);
}

convert_kernels const& conversion_kernels::of(conversion const& by) {
  std::scoped_lock const held{making_};
  auto& found = made_[{by.crossing(), by.to}];
  if (!found) { found = std::make_unique<convert_kernels>(device_, by.crossing(), by.to); }
  return *found;
}

void conversion_kernels::close() {
  std::scoped_lock const held{making_};
  closing all;
  for (auto& [kinds, kernels] : made_) {
    if (kernels) { all.close(*kernels); }
  }
  all.finish();
}

}  // namespace pyxfer
