#include "kernels.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "activity.hpp"
#include "device.hpp"
#include "entry.hpp"
#include "instructions.hpp"
#include "memory.hpp"
#include "peer.hpp"
#include "stream_registry.hpp"
#include "transfer.hpp"

namespace pyxfer::hostrt {

namespace {

enum special : std::size_t { tid, ntid, ctaid, nctaid, smid, globaltimer, clock64, parameters };
constexpr std::array<char const*, parameters> special_registers{
    "%tid.x", "%ntid.x", "%ctaid.x", "%nctaid.x", "%smid", "%globaltimer", "%clock64"};

/// Reads entries word by word. It knows no comments.
class reader {
 public:
  explicit reader(std::string const& text) {
    std::string const ignored{" \t\n,()[]{}"};
    std::string const marks{";:@<>+"};
    for (auto at = text.find_first_not_of(ignored); at < text.size();) {
      auto const is_mark = marks.find(text[at]) != std::string::npos;
      auto const end = is_mark ? at + 1 : text.find_first_of(ignored + marks, at);
      words_.push_back(text.substr(at, end - at));
      at = text.find_first_not_of(ignored, end);
    }
  }

  std::vector<kernel_code> read() {
    while (!is_next(".visible")) take();
    while (took(".visible")) read_entry();
    return std::move(made_);
  }

 private:
  bool is_next(char const* wanted) const {
    return next_ < words_.size() && words_[next_] == wanted;
  }
  bool took(char const* wanted) {
    auto const there = is_next(wanted);
    if (there) ++next_;
    return there;
  }
  void expect(char const* wanted) {
    if (!took(wanted)) throw std::invalid_argument{wanted};
  }
  std::string take() {
    if (next_ == words_.size()) throw std::invalid_argument{"the end"};
    return words_[next_++];
  }
  std::size_t add_slot(word value = 0) {
    made_.back().slots.push_back(value);
    return made_.back().slots.size() - 1;
  }
  void declare(std::string const& name) {
    if (!names_.emplace(name, add_slot()).second) throw std::invalid_argument{name};
  }
  static word number_in(std::string const& text) {
    std::size_t used = 0;
    auto const value = std::stoull(text, &used, 0);
    if (used != text.size()) throw std::invalid_argument{text};
    return value;
  }
  std::size_t take_operand() {
    auto const text = take();
    auto const found = names_.find(text);
    return found != names_.end() ? found->second : add_slot(number_in(text));
  }

  void read_entry() {
    expect(".entry");
    made_.emplace_back();
    names_.clear();
    for (auto const* const name : special_registers) declare(name);
    auto& [name, parameter_bytes, arrays, slots, code] = made_.back();
    name = take();
    while (took(".param")) {
      auto const kind = take();
      declare(take());
      auto const is_array = kind == ".b64";
      auto const items = is_array ? number_in(take()) : 1;
      parameter_bytes.push_back(items * (kind == ".u32" ? 4 : 8));
      arrays.push_back(is_array);
    }
    // A label is a constant, which is known before its place.
    for (auto at = next_ + 1; at < words_.size() && words_[at] != ".entry"; ++at) {
      if (words_[at] == ":") declare(words_[at - 1]);
    }
    while (next_ < words_.size() && !is_next(".visible")) {
      auto const found = take();
      if (took(":")) {
        slots[names_[found]] = code.size();
      } else if (found == ".reg") {
        read_registers();
      } else {
        read_instruction(found);
      }
    }
    code.push_back({action::leave});
  }

  void read_registers() {
    for (take(); !took(";");) {
      auto const name = take();
      auto const count = took("<") ? number_in(take()) : 0;
      if (count == 0) declare(name);
      for (word i = 0; i < count; ++i) declare(name + std::to_string(i));
      took(">");
    }
  }

  void read_instruction(std::string name) {
    auto const guard = name == "@" ? take_operand() : instruction::always;
    if (guard != instruction::always) name = take();
    auto const known = known_instructions().find(name);
    if (known == known_instructions().end()) throw std::invalid_argument{name};
    auto made = known->second;
    made.guard = guard;
    // A parameter's name is its value, and a register holds the address of a part of an array.
    auto const is_indirect = name.rfind("ld.param.", 0) == 0 && next_ + 1 < words_.size() &&
                             words_[next_ + 1].front() == '%';
    if (is_indirect) {
      made = {action::load_parameter, 1, static_cast<std::uint8_t>(name.back() == '2' ? 4 : 8)};
      made.guard = guard;
      made.slots[0] = take_operand();
      read_address(made);
    }
    if (made.does == action::store) read_address(made);
    for (std::size_t i = 0; i < made.operands && !is_indirect; ++i) {
      made.slots.at(i) = take_operand();
    }
    if (made.does == action::load) read_address(made);
    auto const source = made.does == action::compute ? made.slots[1] : 0;
    if (source == globaltimer || source == clock64) made.does = action::read_clock;
    made_.back().instructions.push_back(made);
    expect(";");
  }
  void read_address(instruction& of) {
    of.address = take_operand();
    if (took("+")) of.offset = number_in(take());
  }

  std::vector<std::string> words_;
  std::size_t next_ = 0;
  std::vector<kernel_code> made_;
  std::map<std::string, std::size_t> names_;  ///< of one entry, with their slots
};

/// Loads or stores a value; in order, as of a thread that uses `.volatile` and `membar`.
template <typename Value>
void access_value(word address, bool stores, word& value) {
  auto& there = *reinterpret_cast<std::atomic<Value>*>(address);
  if (stores) return there.store(static_cast<Value>(value), std::memory_order_release);
  value = there.load(std::memory_order_acquire);
}

/// A kernel that runs.
class running {
 public:
  running(kernel_code const& code, std::vector<word> const& values, unsigned int blocks,
          unsigned int threads, loss_epoch const& epoch)
      : code_{code}, first_slots_{code.slots}, threads_{threads}, epoch_{epoch} {
    first_slots_[ntid] = threads;
    first_slots_[nctaid] = blocks;
    std::copy(values.begin(), values.end(), first_slots_.begin() + parameters);
  }

  /// Runs the blocks below `end`, unless the device is lost.
  void run_below(unsigned int end) {
    constexpr std::chrono::microseconds poll_period{20};
    for (auto goes_on = true; goes_on && is_current(epoch_);) {
      polls_ = false;
      touch_memory(epoch_, [&] { goes_on = run_for_a_while(end); });
      if (error_ != cudaSuccess && is_current(epoch_)) lose(epoch_.device, error_);
      if (polls_) std::this_thread::sleep_for(poll_period);
    }
  }

  [[nodiscard]] bool has_stored() const noexcept { return has_stored_; }

 private:
  /// Returns whether there is more to do.
  bool run_for_a_while(unsigned int end) {
    constexpr word most = 1 << 16;
    auto const since = std::chrono::nanoseconds{steady::now().time_since_epoch()}.count();
    for (word done = 0; done < most && !polls_; ++done) {
      if (next_ == nullptr && !begin_thread(end)) return false;
      auto const& at = *next_++;
      auto* const slots = slots_.data();
      if (at.guard != instruction::always && slots[at.guard] == 0) continue;
      switch (at.does) {
        case action::compute:
          slots[at.slots[0]] = at.compute(slots[at.slots[1]], slots[at.slots[2]]);
          break;
        case action::multiply_add:
          slots[at.slots[0]] =
              multiply_add(slots[at.slots[1]], slots[at.slots[2]], slots[at.slots[3]]);
          break;
        case action::read_clock:
          slots[at.slots[0]] = (static_cast<word>(since) + done) * (at.slots[1] == clock64 ? 2 : 1);
          break;
        case action::branch: next_ = code_.instructions.data() + slots[at.slots[0]]; break;
        case action::leave: next_ = nullptr; break;
        case action::fence: break;
        case action::load_parameter:
          slots[at.slots[0]] = 0;
          std::memcpy(&slots[at.slots[0]],
                      reinterpret_cast<void const*>(slots[at.address] + at.offset), at.bytes);
          break;
        case action::load:
        case action::store:
          if (!access(at, slots[at.address] + at.offset)) return false;
      }
    }
    return true;
  }

  bool begin_thread(unsigned int end) {
    if (thread_ == threads_) {
      thread_ = 0;
      ++block_;
    }
    if (block_ >= end) return false;
    slots_ = first_slots_;
    slots_[tid] = thread_++;
    slots_[ctaid] = block_;
    auto const multiprocessors = attribute(cudaDevAttrMultiProcessorCount, epoch_.device);
    slots_[smid] = block_ % static_cast<unsigned int>(multiprocessors.value_or(1));
    seen_.clear();
    polled_ = 0;
    next_ = code_.instructions.data();
    return true;
  }

  bool access(instruction const& at, word address) {
    auto const stores = at.does == action::store;
    auto const bytes = std::size_t{at.operands} * at.bytes;
    auto& last = allowed_.at(stores ? 1 : 0);
    if (!may_access(last, address, bytes)) error_ = cudaErrorIllegalAddress;
    if ((address & (bytes - 1)) != 0) error_ = cudaErrorMisalignedAddress;
    if (error_ != cudaSuccess) return false;
    has_stored_ = has_stored_ || stores;
    if (!stores && !at.is_plain) polls_ = std::exchange(polled_, address) == address;
    address += last.to_view;
    for (std::size_t i = 0; i < at.operands; ++i, address += at.bytes) {
      auto& value = slots_[at.slots[i]];
      switch (at.bytes) {
        case 1: access_value<std::uint8_t>(address, stores, value); break;
        case 2: access_value<std::uint16_t>(address, stores, value); break;
        case 4: access_value<std::uint32_t>(address, stores, value); break;
        default: access_value<word>(address, stores, value);
      }
      if (at.is_plain) value = seen_.try_emplace(address, value).first->second;
    }
    return true;
  }

  /// Memory that the device may access, and what added to its addresses makes those of its view.
  struct allowed {
    word begin = 0;
    word end = 0;
    word to_view = 0;
  };

  /// Makes `last` that of the address.
  bool may_access(allowed& last, word address, std::size_t bytes) const {
    auto const device = epoch_.device;
    if (address < last.begin || address >= last.end) {
      last = {};
      auto const known = memory().find(reinterpret_cast<void const*>(address));
      if (!known) return attribute(cudaDevAttrPageableMemoryAccess, device) == 1;
      if (known->kind == memory_kind::device && !has_peer_access(device, known->device))
        return false;
      auto const view = reinterpret_cast<word>(known->view);
      last = {known->address, known->address + known->bytes, view - known->address};
    }
    return last.end - address >= bytes;
  }

  kernel_code const& code_;
  std::vector<word> first_slots_;
  unsigned int threads_;
  loss_epoch epoch_;
  std::vector<word> slots_;
  instruction const* next_ = nullptr;  ///< null between two threads
  unsigned int block_ = 0;
  unsigned int thread_ = 0;
  std::array<allowed, 2> allowed_{};  ///< memory to load and to store
  std::map<word, word> seen_;         ///< by plain loads of this thread
  word polled_ = 0;                   ///< the address of its last other load
  bool polls_ = false;
  bool has_stored_ = false;
  cudaError_t error_ = cudaSuccess;
};

/// When the gates of one flag were opened; 0 before. On a device all of them see the flag within a
/// microsecond; here a busy machine would run one of the workers much later than another, so all
/// take the time of the first.
using opening = std::atomic<steady::rep>;

/// The opening that gates of this flag share if they are queued before it is seen.
std::shared_ptr<opening> opening_of(word flag) {
  static auto& mutex = *new std::mutex;
  static auto& known = *new std::map<word, std::weak_ptr<opening>>;
  std::scoped_lock const lock{mutex};
  auto shared = known[flag].lock();
  if (!shared || *shared != 0) known[flag] = shared = std::make_shared<opening>(0);
  return shared;
}

steady::time_point see(opening& gate) {
  steady::rep unseen = 0;
  gate.compare_exchange_strong(unseen, steady::now().time_since_epoch().count());
  return steady::time_point{steady::duration{gate}};
}

/// -1 for host memory.
int device_at(word address) {
  auto const known = memory().find(reinterpret_cast<void const*>(address));
  return known && known->kind == memory_kind::device ? known->device : -1;
}

}  // namespace

std::vector<kernel_code> const& kernels_of(std::string const& text) {
  static auto& mutex = *new std::mutex;
  static auto& known = *new std::map<std::string, std::vector<kernel_code>>;
  std::scoped_lock const lock{mutex};
  if (known.count(text) == 0) known[text] = reader{text}.read();
  return known[text];
}

void queue_kernel(kernel_code const& code, unsigned int blocks, unsigned int threads,
                  std::shared_ptr<stream> const& on, void** parameters,
                  ordered_delay const& delay) {
  std::vector<word> values;
  std::vector<std::shared_ptr<std::vector<std::byte>>> arrays;  // the kernel has their addresses
  for (std::size_t i = 0; i < code.parameter_bytes.size(); ++i) {
    auto const* const given = static_cast<std::byte const*>(parameters[i]);
    auto const bytes = code.parameter_bytes[i];
    values.push_back(0);
    if (code.is_array[i]) {
      arrays.push_back(std::make_shared<std::vector<std::byte>>(given, given + bytes));
      values.back() = reinterpret_cast<word>(arrays.back()->data());
    } else {
      std::memcpy(&values.back(), given, bytes);
    }
  }
  auto const gate = code.name == "gate" ? opening_of(values.at(0)) : nullptr;
  activity_place const where{on->device(), on->id(), this_thread().correlation};
  auto work = [=, &code](work_start const& queued) {
    static_cast<void>(arrays);  // they live as long as the work
    work_start const start{queued.epoch, delay.serve(queued.ready)};
    running run{code, values, blocks, threads, start.epoch};
    activity_span span{start.ready, start.ready};
    // The text decides what happens. Its name says how the time is modelled.
    if (code.name == "copy16") {
      copy_path const path{device_at(values.at(1)), device_at(values.at(0))};
      span = move_modelled(values.at(2) * 16, path, true, start, [&](std::size_t half) {
        run.run_below(half == 0 ? blocks / 2 : blocks);
      });
    } else {
      run.run_below(blocks);
      auto const opened = gate && !run.has_stored();
      span.end = opened ? std::max(start.ready, see(*gate)) : steady::now();
    }
    if (where.correlation != 0 && is_current(start.epoch)) {
      emit_kernel(where, span, code.name.c_str());
    }
    return span.end;
  };
  streams().enqueue(on, std::move(work), {}, engine::kernels);
}

}  // namespace pyxfer::hostrt
