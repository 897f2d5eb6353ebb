#include "ptx.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <regex>
#include <thread>
#include <utility>

#include "memory.hpp"
#include "peer.hpp"
#include "waiting.hpp"

namespace pyxfer::hostrt {
namespace {

constexpr std::uint8_t predicate = 1;
constexpr std::uint8_t constant = 0;

std::map<std::string, ptx_instruction> const& instructions() {
  static auto& known = *new std::map<std::string, ptx_instruction>{
      {"mov.u32", {ptx_op::move, 4, 4, 1}},
      {"mov.u64", {ptx_op::move, 8, 8, 1}},
      {"cvt.u64.u32", {ptx_op::move, 8, 4, 1}},
      {"cvta.to.global.u64", {ptx_op::move, 8, 8, 1}},
      {"ld.param.u32", {ptx_op::move, 4, 4, 1}},
      {"ld.param.u64", {ptx_op::move, 8, 8, 1}},
      {"add.u64", {ptx_op::add, 8, 8, 2}},
      {"sub.u32", {ptx_op::subtract, 4, 4, 2}},
      {"sub.u64", {ptx_op::subtract, 8, 8, 2}},
      {"mul.lo.u64", {ptx_op::multiply, 8, 8, 2}},
      {"mul.wide.u32", {ptx_op::multiply, 8, 4, 2}},
      {"shl.b64", {ptx_op::shift_left, 8, 8, 2}},
      {"setp.eq.u32", {ptx_op::equal, predicate, 4, 2}},
      {"setp.eq.u64", {ptx_op::equal, predicate, 8, 2}},
      {"setp.ne.u32", {ptx_op::not_equal, predicate, 4, 2}},
      {"setp.lt.u64", {ptx_op::less, predicate, 8, 2}},
      {"setp.ge.u64", {ptx_op::not_less, predicate, 8, 2}},
      {"ld.global.u32", {ptx_op::load, 4, 4, 1, true}},
      {"ld.global.u64", {ptx_op::load, 8, 8, 1, true}},
      {"ld.volatile.global.u32", {ptx_op::load, 4, 4, 1}},
      {"ld.volatile.global.u64", {ptx_op::load, 8, 8, 1}},
      {"ld.global.cg.v4.b32", {ptx_op::load, 4, 4, 4}},
      {"st.global.u32", {ptx_op::store, 4, 4, 1}},
      {"st.global.u64", {ptx_op::store, 8, 8, 1}},
      {"st.volatile.global.u32", {ptx_op::store, 4, 4, 1}},
      {"st.global.cg.v4.b32", {ptx_op::store, 4, 4, 4}},
      {"membar.sys", {ptx_op::fence, 0, 0, 0}},
      {"bra", {ptx_op::branch, 0, 0, 0}},
      {"ret", {ptx_op::leave, 0, 0, 0}},
  };
  return known;
}

class reader {
 public:
  explicit reader(std::string const& text) {
    static std::regex const word{R"(//.*|[\w.%$]+|\S)"};
    for (std::sregex_iterator at{text.begin(), text.end(), word}, end; at != end; ++at) {
      if (at->str().rfind("//", 0) != 0) words_.push_back(at->str());
    }
    words_.emplace_back();  // the end
  }

  std::vector<ptx_entry> read() {
    for (auto const* const directive : {".version", ".target", ".address_size"}) {
      expect(directive);
      take();
    }
    std::vector<ptx_entry> found;
    while (!is_next("")) found.push_back(read_entry());
    return found;
  }

 private:
  struct slot {
    std::size_t number;
    std::uint8_t bytes;
  };

  [[noreturn]] static void refuse(std::string const& word) { throw invalid_ptx{word}; }

  [[nodiscard]] bool is_next(char const* word, std::size_t ahead = 0) const {
    return next_ + ahead < words_.size() && words_[next_ + ahead] == word;
  }
  std::string take() {
    if (is_next("")) refuse("the text ends too early");
    return words_[next_++];
  }
  bool took(char const* word) {
    auto const there = is_next(word);
    if (there) ++next_;
    return there;
  }
  void expect(char const* word) {
    if (!took(word)) refuse(take());
  }

  std::uint8_t take_type() {
    auto const word = take();
    if (word == ".pred") return predicate;
    if (word == ".u32" || word == ".b32") return 4;
    if (word != ".u64") refuse(word);
    return 8;
  }

  std::uint64_t take_number() {
    auto const word = take();
    char* stop = nullptr;
    auto const value = std::strtoull(word.c_str(), &stop, 0);
    if (*stop != '\0') refuse(word);
    return value;
  }

  slot add_slot(std::uint8_t bytes, std::uint64_t value = 0) {
    made_.slots.push_back(value);
    return {made_.slots.size() - 1, bytes};
  }
  void declare(std::string const& name, std::uint8_t bytes) {
    if (!names_.emplace(name, add_slot(bytes)).second) refuse(name);
  }

  ptx_entry read_entry() {
    made_ = {};
    names_.clear();
    std::map<std::string, std::size_t> labels;
    std::vector<std::pair<std::size_t, std::string>> branches;
    for (auto const* const name : {"%tid.x", "%ntid.x", "%ctaid.x", "%nctaid.x", "%smid"}) {
      declare(name, 4);
    }
    for (auto const* const name : {"%globaltimer", "%clock64"}) declare(name, 8);
    expect(".visible");
    expect(".entry");
    made_.name = take();
    expect("(");
    do {
      expect(".param");
      made_.parameter_bytes.push_back(take_type());
      declare("[" + take(), made_.parameter_bytes.back());
    } while (took(","));
    expect(")");
    expect("{");
    while (!took("}")) {
      if (is_next(":", 1)) {
        labels[take()] = made_.code.size();
        expect(":");
        continue;
      }
      if (took(".reg")) {
        read_registers();
      } else if (read_instruction().op == ptx_op::branch) {
        branches.emplace_back(made_.code.size() - 1, take());
      }
      expect(";");
    }
    made_.code.push_back(instructions().at("ret"));
    for (auto const& [from, label] : branches) {
      if (labels.count(label) == 0) refuse(label);
      made_.code[from].offset = labels[label];
    }
    return std::move(made_);
  }

  void read_registers() {
    auto const bytes = take_type();
    do {
      auto const name = take();
      if (!took("<")) {
        declare(name, bytes);
        continue;
      }
      auto const count = take_number();
      for (std::uint64_t i = 0; i < count; ++i) declare(name + std::to_string(i), bytes);
      expect(">");
    } while (took(","));
  }

  /// A register, a constant, or a parameter in brackets.
  std::uint16_t take_operand(std::uint8_t bytes) {
    auto const in_brackets = took("[");
    auto const found = names_.find((in_brackets ? "[" : "") + words_[next_]);
    auto const known = found != names_.end();
    auto const [number, has] = known ? (take(), found->second) : add_slot(constant, take_number());
    if (in_brackets) expect("]");
    if (has != bytes && has != constant) refuse(words_[next_ - 1]);
    return static_cast<std::uint16_t>(number);
  }

  void take_address(ptx_instruction& of) {
    expect("[");
    of.address = take_operand(8);
    if (took("+")) of.offset = take_number();
    expect("]");
  }

  void take_values(ptx_instruction& of) {
    for (std::size_t i = 0; i < of.sources; ++i) {
      if (of.sources > 1) expect(i == 0 ? "{" : ",");
      of.slots.at(i) = take_operand(of.bytes);
    }
    if (of.sources > 1) expect("}");
  }

  ptx_instruction const& read_instruction() {
    auto const is_guarded = took("@");
    auto const is_negated = is_guarded && took("!");
    auto const guard = is_guarded ? take_operand(predicate) : ptx_instruction::always;
    auto const word = take();
    auto const known = instructions().find(word);
    if (known == instructions().end()) refuse(word);
    auto made = known->second;
    made.guard = guard;
    made.is_negated = is_negated;
    if (made.op == ptx_op::load) {
      take_values(made);
      expect(",");
      take_address(made);
    } else if (made.op == ptx_op::store) {
      take_address(made);
      expect(",");
      take_values(made);
    } else if (made.sources > 0) {
      made.slots[0] = take_operand(made.bytes);
      for (std::size_t i = 1; i <= made.sources; ++i) {
        expect(",");
        made.slots.at(i) = take_operand(made.source_bytes);
      }
      auto const source = made.slots[1];
      if (source == globaltimer || source == clock64) made.op = ptx_op::read_clock;
    }
    return made_.code.emplace_back(made);
  }

  std::vector<std::string> words_;
  std::size_t next_ = 0;
  ptx_entry made_;
  std::map<std::string, slot> names_;
};

template <typename Value>
Value& value_at(std::uintptr_t address) {
  return *reinterpret_cast<Value*>(address);
}

std::uint64_t load(std::uintptr_t address, std::uint8_t bytes) {
  if (bytes == 4) return __atomic_load_n(&value_at<std::uint32_t>(address), __ATOMIC_ACQUIRE);
  return __atomic_load_n(&value_at<std::uint64_t>(address), __ATOMIC_ACQUIRE);
}

void store(std::uintptr_t address, std::uint8_t bytes, std::uint64_t value) {
  if (bytes == 8)
    return __atomic_store_n(&value_at<std::uint64_t>(address), value, __ATOMIC_RELEASE);
  auto const low = static_cast<std::uint32_t>(value);
  __atomic_store_n(&value_at<std::uint32_t>(address), low, __ATOMIC_RELEASE);
}

}  // namespace

std::vector<ptx_entry> read_ptx(std::string const& text) { return reader{text}.read(); }

ptx_run::ptx_run(ptx_entry const& kernel, std::vector<std::uint64_t> const& parameters,
                 unsigned int blocks, unsigned int threads, int device)
    : kernel_{kernel},
      first_slots_{kernel.slots},
      threads_{threads},
      device_{device},
      multiprocessors_{static_cast<unsigned int>(
          attribute(cudaDevAttrMultiProcessorCount, device).value_or(1))} {
  first_slots_[ntid] = threads;
  first_slots_[nctaid] = blocks;
  std::copy(parameters.begin(), parameters.end(), first_slots_.begin() + specials);
}

void ptx_run::run_up_to(unsigned int block, loss_epoch const& epoch) {
  constexpr std::chrono::microseconds poll_period{20};
  for (auto goes_on = true; goes_on && is_current(epoch);) {
    polls_ = false;
    touch_memory(epoch, [&] { goes_on = step(block); });
    if (error_ != cudaSuccess && is_current(epoch)) lose(device_, error_);
    if (polls_) std::this_thread::sleep_for(poll_period);
  }
}

bool ptx_run::begin_thread(unsigned int block) {
  if (thread_ == threads_) {
    thread_ = 0;
    ++block_;
  }
  if (block_ >= block) return false;
  slots_ = first_slots_;
  slots_[tid] = thread_++;
  slots_[ctaid] = block_;
  slots_[smid] = block_ % multiprocessors_;
  seen_.clear();
  polled_ = 0;
  next_ = kernel_.code.data();
  return true;
}

bool ptx_run::step(unsigned int block) {
  constexpr std::uint64_t most_instructions = 1 << 16;
  auto const since = std::chrono::nanoseconds{steady::now().time_since_epoch()}.count();
  for (std::uint64_t done = 0; done < most_instructions && !polls_; ++done) {
    if (next_ == nullptr && !begin_thread(block)) return false;
    auto const& at = *next_++;
    auto* const slots = slots_.data();
    if (at.guard != ptx_instruction::always && (slots[at.guard] == 0) != at.is_negated) continue;
    auto& result = slots[at.slots[0]];
    auto const a = slots[at.slots[1]];
    auto const b = slots[at.slots[2]];
    switch (at.op) {
      case ptx_op::move: result = a; break;
      case ptx_op::read_clock:
        result = (static_cast<std::uint64_t>(since) + done) * (at.slots[1] == clock64 ? 2 : 1);
        break;
      case ptx_op::add: result = a + b; break;
      case ptx_op::subtract:
        result = at.bytes == 8 ? a - b : static_cast<std::uint32_t>(a - b);
        break;
      case ptx_op::multiply: result = a * b; break;
      case ptx_op::shift_left: result = b < 64 ? a << b : 0; break;
      case ptx_op::equal: result = a == b ? 1 : 0; break;
      case ptx_op::not_equal: result = a != b ? 1 : 0; break;
      case ptx_op::less: result = a < b ? 1 : 0; break;
      case ptx_op::not_less: result = a >= b ? 1 : 0; break;
      case ptx_op::branch: next_ = kernel_.code.data() + at.offset; break;
      case ptx_op::load:
      case ptx_op::store:
        if (!access(at)) return false;
        break;
      case ptx_op::fence: std::atomic_thread_fence(std::memory_order_seq_cst); break;
      case ptx_op::leave: next_ = nullptr;
    }
  }
  return true;
}

bool ptx_run::access(ptx_instruction const& at) {
  auto address = slots_[at.address] + at.offset;
  auto const stores = at.op == ptx_op::store;
  if (!check(stores, address, std::size_t{at.bytes} * at.sources)) return false;
  if (!stores && at.sources == 1 && !at.is_plain) {
    polls_ = std::exchange(polled_, address) == address;
  }
  has_stored_ = has_stored_ || stores;
  for (std::size_t i = 0; i < at.sources; ++i, address += at.bytes) {
    auto& value = slots_[at.slots[i]];
    if (stores) {
      store(address, at.bytes, value);
      seen_.erase(address);
    } else if (at.is_plain) {
      value = seen_.try_emplace(address, load(address, at.bytes)).first->second;
    } else {
      value = load(address, at.bytes);
    }
  }
  return true;
}

bool ptx_run::check(bool stores, std::uintptr_t address, std::size_t bytes) {
  auto& [begin, end] = accessible_.at(stores ? 1 : 0);
  if ((address & (bytes - 1)) != 0) error_ = cudaErrorMisalignedAddress;
  if (error_ != cudaSuccess) return false;
  if (address >= begin && address < end && end - address >= bytes) return true;
  auto const* const at = reinterpret_cast<void const*>(address);
  auto const where = memory().place(at, bytes);
  auto const known = memory().find(at);
  auto const pageable = attribute(cudaDevAttrPageableMemoryAccess, device_) == 1;
  auto const allowed =
      where == placement::locked || (where == placement::pageable && pageable) ||
      (where == placement::device && known && peers().allowed(device_, known->device));
  if (!allowed) error_ = cudaErrorIllegalAddress;
  if (allowed && known)
    accessible_.at(stores ? 1 : 0) = {known->address, known->address + known->bytes};
  return allowed;
}

}  // namespace pyxfer::hostrt
