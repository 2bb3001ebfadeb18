#include "farandole/timeline/merge/meetings.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace farandole {
namespace {

// Broadcast is not among them, because its root may leave before another rank has entered it.
constexpr std::array<std::string_view, 5> synchronising = {"allreduce", "all_gather", "reduce_scatter",
                                                           "all_to_all", "barrier"};

}  // namespace

Meetings::Meetings(std::span<const std::string> names, std::size_t most) : most_(most) {
  for (const std::string& name : names)
    synchronises_.push_back(std::find(synchronising.begin(), synchronising.end(), name) !=
                            synchronising.end());
}

void Meetings::add(const Record& collective) {
  if (!synchronises_.at(collective.operation) || collective.sequence % stride_ != 0) return;
  if (meetings_.size() >= most_) {
    // Many groups of ranks can have a collective with the same number, which no stride separates.
    if (stride_ > UINT32_MAX) return;
    stride_ *= 2;
    std::erase_if(meetings_,
                  [this](const Meeting& meeting) { return (meeting.key & UINT32_MAX) % stride_ != 0; });
    return add(collective);
  }
  meetings_.push_back({std::uint64_t{collective.communicator} << 32 | collective.sequence,
                       collective.start_ns, collective.end_ns});
}

}  // namespace farandole
