// Finds the collective in which a run hangs, and the ranks that it lacks. The ranks' watchdogs ask during
// the run, the doctor asks afterwards. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace farandole {

// Identifies a collective of a communicator; equal on all ranks.
struct CallKey {
  std::uint32_t communicator = 0;
  std::uint32_t sequence = 0;
  bool operator==(const CallKey&) const = default;
};

// How far a rank is in the collectives of one communicator. The texts must outlive this object.
struct CallProgress {
  std::uint32_t communicator = 0;
  // Number of its collectives that the rank has begun; the last has sequence begun - 1.
  std::uint32_t begun = 0;
  bool in_flight = false;            // the last one has not ended
  std::int64_t since_ns = 0;         // when the last one began
  std::string_view operation, name;  // of the last one
};

struct RankProgress {
  enum class State {
    runs,
    stopped,  // by a signal or a debugger, so what it has sent may not arrive
    gone,     // it has ended, or does not answer
  };
  int rank = 0;
  State state = State::runs;
  std::vector<CallProgress> calls;
  // False if `calls` may lack communicators in which the rank has not begun a collective.
  bool all_communicators = true;
};

// A collective in which a run hangs.
struct StalledCall {
  CallKey key;
  std::string text;          // "allreduce #17 'bucket 2'"
  std::vector<int> waiting;  // ascending
  // First those that are stopped or gone, then those that do something else, then those that wait
  // themselves, in another collective. Each part is ascending.
  std::vector<int> missing;
  std::size_t victims = 0;    // how many ranks at the end of `missing` wait themselves
  std::int64_t since_ns = 0;  // when the first waiting rank began it
};

// Among the collectives in which ranks wait, returns one that lacks a rank, if there is one; of several, the
// one in which most ranks wait; of several, the one that began first. std::nullopt if no rank waits. `ranks`
// must be ordered by rank.
std::optional<StalledCall> find_stalled_call(std::span<const RankProgress> ranks);

// "allreduce #17 'bucket 0'", or "allreduce #17" without a name of its own.
std::string describe_collective(std::string_view operation, std::uint32_t sequence, std::string_view name);

}  // namespace farandole
