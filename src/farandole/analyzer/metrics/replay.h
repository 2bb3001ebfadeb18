// The replay: what the training threads of all ranks did between waits takes as long as it did, and
// collectives, which bring the ranks together, take as long as its caller wants. The caller describes each
// rank as a program of operations: as recorded, or changed.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace farandole {

// An operation of a rank's training thread. Units: nanoseconds.
struct ReplayOperation {
  enum class Kind : std::uint8_t {
    work,  // Works for `ns`.
    mark,  // Reaches the mark `index` after `ns`, and continues immediately.
    enter,  // Enters collective `index` and continues immediately. It ends `ns` after the last rank entered it.
    await,   // Waits until the collective has ended that this rank entered as number `index`, from 0.
    push,    // As enter, but the training threads reduce, one reduction after the other. Each works for `ns`.
    poll,    // Continues these reductions as far as possible without waiting.
    finish,  // As await, and continues these reductions in the meantime.
  };
  static constexpr std::uint32_t nothing = std::numeric_limits<std::uint32_t>::max();

  Kind kind = Kind::work;
  std::uint32_t index = 0;
  double ns = 0;

  // Of `enter`.
  double delay_ns = 0;            // From when the rank could enter to when it does.
  std::uint32_t after = nothing;  // The rank cannot enter before its collective with this number has ended.
  bool leaves_early = false;      // Ends `ns` after this rank entered it.
  bool wakes = false;  // A rank that was not the last learns of the end later, as after a reduction.
};

// The programs of all ranks.
class ReplayProgram {
 public:
  virtual ~ReplayProgram() = default;
  virtual std::size_t ranks() const = 0;
  // Number of ranks that enter this collective.
  virtual std::size_t members(std::size_t collective) const = 0;
  // Appends the next operations of the rank, or none if its program has ended.
  virtual void append(std::size_t rank, std::vector<ReplayOperation>& into) = 0;
};

// When ranks reach a mark, since the start.
struct ReplayMark {
  double first = std::numeric_limits<double>::infinity();
  double last = -std::numeric_limits<double>::infinity();
};

// Returns the marks in the order of their indices. `wake_ns`: delay between the end of what a rank waits for
// and its next work.
std::vector<ReplayMark> replay(ReplayProgram& program, double wake_ns = 0);

}  // namespace farandole
