#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

/// Typed errors, and the macro that throws them. The throwing code is out of line, so that a check
/// costs one comparison.
namespace pyxfer {

/// A CUDA call failed: which call, at which line of csrc/, and with which code.
class cuda_error : public std::runtime_error {
 public:
  cuda_error(int code, std::string name, std::string call, std::string where,
             std::string description);

  [[nodiscard]] int code() const noexcept { return code_; }
  [[nodiscard]] std::string const& name() const noexcept { return name_; }
  [[nodiscard]] std::string const& call() const noexcept { return call_; }
  [[nodiscard]] std::string const& where() const noexcept { return where_; }
  [[nodiscard]] std::string const& description() const noexcept { return description_; }

 private:
  int code_;
  std::string name_;
  std::string call_;
  std::string where_;
  std::string description_;
};

/// No driver, a driver too old, or no device.
class unavailable_error : public cuda_error {
  using cuda_error::cuda_error;
};

/// Device or page-locked memory ran out.
class memory_error : public cuda_error {
  using cuda_error::cuda_error;
};

/// The driver did not make the kernels of a text: its compiler is missing or disabled, or it
/// refused the text.
class kernels_unavailable_error : public cuda_error {
  using cuda_error::cuda_error;
};

/// Only a new process can use the device again.
class device_lost_error : public cuda_error {
  using cuda_error::cuda_error;
};

/// The device did not finish within the deadline.
class timeout_error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The running operation was cancelled.
class cancelled_error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// CUDA was used before fork(); no call may be made in this process.
class forked_error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What a user can do about an error code; empty if there is no general advice.
[[nodiscard]] std::string hint_for(int code);

[[noreturn]] void throw_error(cudaError_t status, char const* expression, char const* where);
[[noreturn]] void throw_error(CUresult status, char const* expression, char const* where);

inline void check(cudaError_t status, char const* expression, char const* where) {
  if (status != cudaSuccess) { throw_error(status, expression, where); }
}

inline void check(CUresult status, char const* expression, char const* where) {
  if (status != CUDA_SUCCESS) { throw_error(status, expression, where); }
}

}  // namespace pyxfer

#define PYXFER_TEXT_OF(x) #x
#define PYXFER_LINE_TEXT(x) PYXFER_TEXT_OF(x)

/// Makes the call. If it fails, throws a typed error that names the call and this line.
#define PYXFER_TRY(call) ::pyxfer::check((call), #call, __FILE__ ":" PYXFER_LINE_TEXT(__LINE__))

/// The same for a status that the call `name` has returned.
#define PYXFER_TRY_STATUS(name, status) \
  ::pyxfer::check((status), name, __FILE__ ":" PYXFER_LINE_TEXT(__LINE__))
