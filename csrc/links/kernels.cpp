#include "links/kernels.hpp"

#include "cuda/device.hpp"
#include "cuda/driver.hpp"
#include "cuda/error.hpp"
#include "links/kernel_text.hpp"

#include <array>

namespace pyxfer {
namespace {

/// One block for each multiprocessor. On an H200 more blocks change nothing.
constexpr unsigned int copy_threads = 512;

constexpr std::uint32_t any_multiprocessor = 0xffffffff;
constexpr double ns_per_s = 1e9;

void launch(CUfunction function, unsigned int blocks, unsigned int threads, void** parameters,
            stream_view on) {
  PYXFER_TRY(driver().cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, on.handle(),
                                     parameters, nullptr));
}

}  // namespace

kernels::kernels(int device)
    : multiprocessors_{
          static_cast<unsigned int>(device_attribute(device, cudaDevAttrMultiProcessorCount))},
      module_{device, kernel_text} {
  device_guard const guard{device};
  copy_ = module_.function("copy16");
  compute_ = module_.function("compute");
  chase_ = module_.function("chase");
  gate_ = module_.function("gate");
}

void kernels::copy(std::uintptr_t destination, std::uintptr_t source, std::size_t bytes,
                   stream_view on) const {
  std::uint64_t count = bytes / word_bytes;
  std::array<void*, 3> parameters{&destination, &source, &count};
  launch(copy_, multiprocessors_, copy_threads, parameters.data(), on);
}

void kernels::compute(std::uintptr_t results, std::size_t bytes, std::uint32_t rounds,
                      stream_view on) const {
  std::array<void*, 2> parameters{&results, &rounds};
  launch(compute_, static_cast<unsigned int>(bytes / results_bytes), compute_threads,
         parameters.data(), on);
}

void kernels::chase(std::uintptr_t first, std::uintptr_t out, std::uint32_t hops,
                    int multiprocessor, stream_view on) const {
  auto const any = multiprocessor < 0;
  auto wanted = any ? any_multiprocessor : static_cast<std::uint32_t>(multiprocessor);
  std::array<void*, 4> parameters{&first, &out, &hops, &wanted};
  // An idle device gives each multiprocessor one of as many blocks.
  launch(chase_, any ? 1 : multiprocessors_, 1, parameters.data(), on);
}

void kernels::hold(std::uintptr_t flag, std::uintptr_t late, double limit_s, stream_view on) const {
  auto limit_ns = static_cast<std::uint64_t>(limit_s * ns_per_s);
  std::array<void*, 3> parameters{&flag, &late, &limit_ns};
  launch(gate_, 1, 1, parameters.data(), on);
}

void kernels::close() {
  if (users_.close("these kernels")) { module_.close(); }
}

}  // namespace pyxfer
