#include "trace/collection.hpp"

#include "cuda/cleanup.hpp"
#include "trace/error.hpp"

#include <utility>

namespace pyxfer::trace {

collection::collection(library const& from, std::set<record_kind> const& kinds,
                       std::shared_ptr<gathering> into)
    : call_{from.call},
      subscribed_{call_},
      taking_{receive(from.version, std::move(into))},
      enabled_{call_, taking_->reader, kinds} {}

std::shared_ptr<intake const> collection::receive(std::uint32_t version,
                                                  std::shared_ptr<gathering> into) const {
  // Names only now: a library may know them no sooner than it is subscribed to.
  auto taking =
      std::make_shared<intake const>(intake{call_, parser{version, call_}, std::move(into)});
  attach(taking);
  check(call_, "cuptiActivityRegisterCallbacks",
        call_.register_callbacks(lend_buffer, receive_buffer));
  static_cast<void>(take_dropped());  // another profiler's
  return taking;
}

std::size_t collection::take_dropped() const {
  std::size_t dropped = 0;
  auto const code = call_.get_dropped(nullptr, 0, &dropped);
  return code == cupti::result::success ? dropped : 0;
}

void collection::flush() {
  auto const code = call_.flush_all(cupti::flush_forced);
  taking_->into->lose(take_dropped());
  check(call_, "cuptiActivityFlushAll", code);
}

void collection::close() {
  struct last_flush {
    collection& of;
    void close() const { of.flush(); }
  };
  last_flush rest{*this};
  closing all;
  all.close(enabled_);  // first, or what is recorded after the flush would be lost
  all.close(rest);
  all.close(subscribed_);
  all.finish();
}

}  // namespace pyxfer::trace
