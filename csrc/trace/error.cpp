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
      return std::string{"another profiler is active in this process ("} + refused.what() +
             "): this driver allows only one at a time; end it first";
    case cupti::result::insufficient_privileges:
    case cupti::result::virtualized_insufficient_privileges:
      return std::string{"this user may not read the device's activity ("} + refused.what() +
             "): an administrator can allow it for all users with the driver option "
             "NVreg_RestrictProfilingToAdminUsers=0, or give this process CAP_SYS_ADMIN (a "
             "container: --cap-add=SYS_ADMIN); for a virtual GPU, profiling must be enabled on its "
             "host";
    case cupti::result::not_initialized:
      return std::string{refused.what()} + ": there is no driver, or it is older than this library";
    case cupti::result::unknown:
      return std::string{refused.what()} + ": CUPTI 13 reports this if there is no driver";
    default: return refused.what();
  }
}

}  // namespace pyxfer::trace
