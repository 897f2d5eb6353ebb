#include "trace/choice.hpp"

#include "trace/error.hpp"

#include <utility>

namespace pyxfer::trace {

library_choice::library_choice(std::vector<candidate> candidates)
    : candidates_{std::move(candidates)} {
  if (!open_from(0)) { give_up(); }
}

void library_choice::refuse(std::string const& reason) {
  reasons_.push_back(used_.name + ": " + reason);
  if (!open_from(at_ + 1)) { give_up(); }
}

bool library_choice::open_from(std::size_t first) {
  for (auto i = first; i < candidates_.size(); ++i) {
    try {
      used_ = open(candidates_[i]);
      at_ = i;
      return true;
    } catch (refusal const& refused) {
      reasons_.push_back(candidates_[i].name + ": " + advice_for(refused));
    } catch (std::runtime_error const& fault) {
      reasons_.push_back(candidates_[i].name + ": " + fault.what());
    }
  }
  return false;
}

void library_choice::give_up() {
  std::string text = "no CUPTI library can be used here: ";
  if (reasons_.empty()) { text += "none was named"; }
  for (auto const& reason : reasons_) {
    text += (&reason == &reasons_.front() ? "" : "; ") + reason;
  }
  reasons_.clear();
  static_cast<void>(open_from(0));
  throw trace_unavailable_error(text);
}

}  // namespace pyxfer::trace
