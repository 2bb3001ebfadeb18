#include "farandole/comm/watch/deadlock.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "farandole/base/text/phrases.h"

namespace farandole {
namespace {

using Key = std::pair<std::uint32_t, std::uint32_t>;

Key key_of(const CallStatus& call) {
  return {call.key.communicator, call.key.sequence};
}

const CallStatus* call_in(const RankStatus& status, std::uint32_t communicator) {
  const auto calls = calls_of(status);
  const auto found = std::find_if(calls.begin(), calls.end(), [&](const CallStatus& call) {
    return call.key.communicator == communicator;
  });
  return found == calls.end() ? nullptr : &*found;
}

class Deadlock {
 public:
  explicit Deadlock(std::span<const RankStatus> statuses) : statuses_(statuses) {
    for (const auto& status : statuses_)
      if (status.life == Life::running)
        for (const auto& call : calls_of(status))
          if (is_waited_for(call)) hopeless_.emplace(key_of(call), call.ranks);
    while (std::erase_if(hopeless_, [this](const auto& call) {
             return !lacks_a_rank(call.first, call.second) && !is_mismatched(call.first);
           }) > 0) {
    }
  }

  std::vector<HopelessWait> waits() const {
    std::vector<HopelessWait> waits;
    for (std::size_t r = 0; r < statuses_.size(); ++r)
      if (statuses_[r].life == Life::running)
        for (const auto& call : calls_of(statuses_[r]))
          if (is_hopeless(call)) waits.push_back({static_cast<int>(r), call});
    return waits;
  }

 private:
  static bool is_waited_for(const CallStatus& call) {
    return call.in_flight != 0 && (call.blocked != 0 || call.awaits != 0);
  }
  bool is_hopeless(const CallStatus& call) const {
    return is_waited_for(call) && hopeless_.contains(key_of(call));
  }

  // True if ranks wait in different collectives, each of which they take for this call.
  bool is_mismatched(const Key& key) const {
    const CallStatus* first = nullptr;
    for (const auto& status : statuses_) {
      const auto* call = status.life == Life::running ? call_in(status, key.first) : nullptr;
      if (call == nullptr || key_of(*call) != key || !is_waited_for(*call)) continue;
      if (first == nullptr) first = call;
      if (!is_same_call(*first, *call)) return true;
    }
    return false;
  }

  // True if a rank of the communicator has not begun the call and cannot begin it.
  bool lacks_a_rank(const Key& key, int ranks) const {
    int begun = 0, shown = 0;
    bool by_other_threads = false;
    for (const auto& status : statuses_) {
      const auto* call = call_in(status, key.first);
      shown += call != nullptr ? 1 : 0;
      begun += call != nullptr && call->begun > key.second ? 1 : 0;
      by_other_threads = by_other_threads || (call != nullptr && call->caller > 0);
    }
    int able = 0;
    for (const auto& status : statuses_) {
      const auto* call = call_in(status, key.first);
      if (call != nullptr ? call->begun > key.second : shown >= ranks) continue;
      // Where no thread has called yet, it may be such a thread that will.
      const bool unknown = by_other_threads && call != nullptr && call->begun == 0;
      able += unknown || can_begin(status, call) ? 1 : 0;
    }
    return able < ranks - begun;
  }

  bool can_begin(const RankStatus& status, const CallStatus* call) const {
    if (call == nullptr && !status.all_calls) return true;  // it may even have done so
    if (status.life == Life::leaving) return false;
    if (status.life != Life::running) return true;
    if (call == nullptr) return !is_stuck(status, status.thread);
    return !is_stuck(status, call->owner) || (call->caller != 0 && !is_stuck(status, call->caller));
  }

  bool is_stuck(const RankStatus& status, std::int32_t thread) const {
    const auto calls = calls_of(status);
    return std::any_of(calls.begin(), calls.end(),
                       [&](const CallStatus& call) { return blocks(call, thread) && is_hopeless(call); });
  }

  const std::span<const RankStatus> statuses_;
  std::map<Key, int> hopeless_;  // the calls, and how many ranks their communicators have
};

bool is_end(const CallStatus& call) {
  return call.key.communicator == CollectiveRegistry::session_end ||
         std::string_view(call.name) == CollectiveRegistry::training_end;
}
bool is_of_gradients(const CallStatus& call) {
  return std::string_view(call.name).starts_with("bucket ");
}

std::string waits(const std::vector<int>& ranks) {
  return ranks.size() == 1 ? "waits" : "wait";
}
std::string has(const std::vector<int>& ranks) {
  return ranks.size() == 1 ? "has" : "have";
}

// Ranks that are in the same place.
struct Place {
  std::vector<int> ranks;
  std::int64_t steps = 0;  // begun
  bool left = false, at_end = false, in_gradients = false, in_setup = false;
  std::string call, at;  // `at` of the first rank: "", or " at train.py:40 in main"

  bool ended() const { return left || at_end; }
  bool is_same(const Place& other) const {
    return left == other.left && at_end == other.at_end && call == other.call && steps == other.steps;
  }
  std::string text(bool steps_matter) const {
    const auto after = steps_matter ? fmt::format(" after {} {}", steps, steps == 1 ? "step" : "steps") : "";
    const auto who = describe_ranks(ranks);
    if (left)
      return fmt::format("{} {} ended {} session{}", who, has(ranks), ranks.size() == 1 ? "its" : "their",
                         after);
    if (at_end)
      return fmt::format("{} {} ended {} training{} and {} for the others", who, has(ranks),
                         ranks.size() == 1 ? "its" : "their", after, waits(ranks));
    if (in_gradients && steps_matter)
      return fmt::format("{} {} in {} of the gradients of step {}{}", who, waits(ranks), call, steps, at);
    return fmt::format("{} {} in {}{}{}", who, waits(ranks), call, after, at);
  }
};

constexpr const char* same_batches =
    "give all ranks the same number of batches with DistributedSampler, or use Join";

std::string made_fewer(const Place& few, std::int64_t steps) {
  const auto fewer = steps - few.steps;
  return fmt::format("{} {} made {} {} fewer", describe_ranks(few.ranks), has(few.ranks), fewer,
                     fewer == 1 ? "step" : "steps");
}

std::string cause_of(const std::vector<Place>& places) {
  const auto gradients =
      std::find_if(places.begin(), places.end(), [](const Place& place) { return place.in_gradients; });
  const Place* few = nullptr;
  if (gradients != places.end())
    for (const auto& place : places)
      if (place.steps < gradients->steps && (few == nullptr || place.steps < few->steps)) few = &place;
  const auto lone = std::find_if(places.begin(), places.end(), [](const Place& place) {
    return place.ranks == std::vector{0} && !place.ended() && !place.in_gradients;
  });
  const auto others = std::count_if(places.begin(), places.end(),
                                    [](const Place& place) { return place.ended() || place.in_gradients; });
  const bool in_setup =
      std::any_of(places.begin(), places.end(), [](const Place& place) { return place.in_setup; });
  if (in_setup && others > 0)
    return "all ranks must make each optimizer and group together; let no rank return before the others";
  const bool alone = lone != places.end() && others + 1 == std::ssize(places);
  if (alone && few != nullptr)
    return fmt::format(
        "rank 0 calls it alone; let all ranks take part in the validation, or, if rank 0 has had fewer batches, {}",
        same_batches);
  if (alone)
    return "rank 0 calls it alone; let all ranks take part, for example in the validation, or leave the "
           "collective out";
  if (few != nullptr) return fmt::format("{}; {}", made_fewer(*few, gradients->steps), same_batches);
  return "the ranks call their collectives in different orders; let all ranks call the same collectives in "
         "the same order";
}

}  // namespace

std::vector<HopelessWait> find_deadlock(std::span<const RankStatus> statuses) {
  return Deadlock(statuses).waits();
}

std::string describe_deadlock(std::span<const HopelessWait> waits, std::span<const RankStatus> statuses) {
  std::vector<Place> places;
  const auto add = [&](int rank, Place place) {
    auto same =
        std::find_if(places.begin(), places.end(), [&](const Place& one) { return one.is_same(place); });
    if (same == places.end()) same = places.insert(same, std::move(place));
    same->ranks.push_back(rank);
  };
  for (std::size_t r = 0; r < statuses.size(); ++r) {
    const int rank = static_cast<int>(r);
    Place place;
    place.steps = statuses[r].steps;
    place.left = statuses[r].life == Life::leaving;
    const HopelessWait* shown = nullptr;
    for (const auto& wait : waits) {
      if (wait.rank != rank) continue;
      // In the end of its session, a rank may wait in a further call.
      if (shown == nullptr || is_end(wait.call)) shown = &wait;
    }
    if (shown == nullptr && !place.left) continue;
    if (shown != nullptr) {
      place.at_end = is_end(shown->call);
      place.in_setup = is_setup(shown->call);
      place.in_gradients = is_of_gradients(shown->call);
      place.call = describe_call(shown->call);
      if (statuses[r].place[0] != '\0') place.at = fmt::format(" at {}", statuses[r].place);
      if (place.in_gradients) ++place.steps;
    }
    add(rank, std::move(place));
  }
  const bool steps_matter =
      std::any_of(places.begin(), places.end(), [](const Place& place) { return place.in_gradients; });
  constexpr std::size_t most_places = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(places.size(), most_places); ++i)
    text += (i == 0 ? "" : ", ") + places[i].text(steps_matter);
  if (places.size() > most_places) text += ", and others elsewhere";
  return fmt::format("deadlock: {}: {}", text, cause_of(places));
}

}  // namespace farandole
