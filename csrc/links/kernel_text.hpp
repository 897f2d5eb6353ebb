#pragma once

namespace pyxfer {

/// The kernels as PTX. `.target sm_50` and a low `.version` let one text serve every driver from
/// 525 on, which compiles it for its device.
///
/// copy16(destination, source, count): copies `count` words of 16 bytes. Each thread has four loads
/// in flight before it stores.
///
/// compute(results, rounds): each thread repeats x * x - 1.9 in registers, in eight chains, twice
/// in a round, and writes the sum of the chains as a float32. The chains begin with the steps of
/// 1/8 below a number from 0 to 1, which is the thread's, and neither end nor leave -1.9 to 1.71:
/// the operands change all the time, as those of a matrix product do.
///
/// chase(first, out, hops, wanted): follows `hops` pointers from `first` on, one after the other,
/// in the block that runs on the multiprocessor `wanted` (0xffffffff: in every block). Writes a
/// `chase_result` to `out`. The end of the chain is read by a branch before the clocks are, because
/// they would otherwise be read before the last pointer has arrived.
///
/// gate(flag, late, limit): returns when the word at `flag` is not zero, or writes 1 to `late`
/// after `limit` nanoseconds.
extern char const* const kernel_text;

}  // namespace pyxfer
