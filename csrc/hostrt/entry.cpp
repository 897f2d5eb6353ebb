#include "entry.hpp"

#include "capture.hpp"
#include "control.hpp"
#include "injection.hpp"

namespace pyxfer::hostrt {

admission admit(std::size_t call) {
  configure_from_environment();
  auto const kind = all_calls[call].kind;
  auto const ordered = injected().enter(call);
  if (this_thread().in_host_function && kind != call_kind::always) {
    return {cudaErrorNotPermitted, ordered_delay{0}, false};
  }
  if (ordered.code == cudaSuccess && is_unsafe_in_capture(call)) {
    auto const code = captures().admit_unsafe();
    if (code != cudaSuccess) return {code, ordered_delay{0}, false};
  }
  auto const fine = ordered.code == cudaSuccess;
  if (fine && kind == call_kind::work) this_thread().has_context = true;
  return {ordered.code, ordered.delay, fine || kind == call_kind::release};
}

}  // namespace pyxfer::hostrt
