#include "copy/lane.hpp"

#include "cuda/error.hpp"

#include <stdexcept>

namespace pyxfer {

direction direction_of(std::string const& word) {
  if (word == "h2d") { return direction::h2d; }
  if (word == "d2h") { return direction::d2h; }
  throw std::invalid_argument("unknown direction \"" + word + "\"; a lane is h2d or d2h");
}

void validate(lane const& made) {
  if (made.host == 0 || made.device == 0) {
    throw std::invalid_argument("a lane needs a host and a device address");
  }
  if (made.bytes == 0 || made.slots == 0) {
    throw std::invalid_argument("a lane needs at least one byte and one slot");
  }
  if (made.slots > 1 && made.stride < made.bytes) {
    throw std::invalid_argument("the slots of a lane would overlap: stride is less than bytes");
  }
}

void copy_blocking(lane const& along, std::size_t turn) {
  PYXFER_TRY(cudaMemcpy(along.destination(turn), along.source(turn), along.bytes, kind_of(along)));
}

void copy_async(lane const& along, std::size_t turn, stream_view on) {
  PYXFER_TRY(cudaMemcpyAsync(along.destination(turn), along.source(turn), along.bytes,
                             kind_of(along), on.handle()));
}

}  // namespace pyxfer
