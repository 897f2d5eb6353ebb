#include "trace/error.hpp"

namespace pyxfer::trace {

std::string text_of(cupti::functions const& call, cupti::result code) {
  char const* text = nullptr;
  auto const known =
      call.get_result_string(code, &text) == cupti::result::success && text != nullptr;
  return std::string{known ? text : "an unknown error"} + " (" +
         std::to_string(static_cast<std::uint32_t>(code)) + ")";
}

refusal::refusal(cupti::functions const& call, char const* name, cupti::result code)
    : trace_unavailable_error{std::string{name} + " failed with " + text_of(call, code)},
      code_{code} {}

std::string advice_for(refusal const& refused) {
  switch (refused.code()) {
    case cupti::result::multiple_subscribers:
      return std::string{"another profiler is at work in this process ("} + refused.what() +
             "): one at a time is all that this driver allows; end it first";
    case cupti::result::insufficient_privileges:
    case cupti::result::virtualized_insufficient_privileges:
      return std::string{"this user may not read the device's activity ("} + refused.what() +
             "): an administrator may allow it to all with the driver's option "
             "NVreg_RestrictProfilingToAdminUsers=0, or give this process CAP_SYS_ADMIN (to a "
             "container with --cap-add=SYS_ADMIN); a virtual GPU needs profiling turned on by its "
             "host";
    case cupti::result::not_initialized:
      return std::string{refused.what()} + ": no driver answers, or it is older than this library";
    case cupti::result::unknown:
      return std::string{refused.what()} + ": as CUPTI 13 says where no driver answers";
    default: return refused.what();
  }
}

}  // namespace pyxfer::trace
