#include "farandole/timeline/merge/collective_links.h"

#include <algorithm>
#include <tuple>

namespace farandole {

void CollectiveLinks::add(const Collective& what, TraceWriter::Place place, std::int64_t start_ns) {
  if (what.sequence % stride_ != 0) return;
  if (entries_.size() >= most_ && stride_ < (std::uint64_t{1} << 32)) {
    // Selects by sequence number, so that all ranks' entries of a collective are either kept or removed.
    stride_ *= 2;
    std::erase_if(entries_, [this](const Entry& entry) { return entry.key % stride_ != 0; });
    return add(what, place, start_ns);
  }
  if (entries_.size() >= most_) return;
  entries_.push_back(
      {std::uint64_t{what.communicator} << 32 | what.sequence, start_ns, place.rank, place.thread});
}

std::uint64_t CollectiveLinks::write(TraceWriter& trace) {
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.key, a.rank, a.start_ns) < std::tie(b.key, b.rank, b.start_ns);
  });
  const auto same = [](const Entry& a, const Entry& b) { return a.key == b.key && a.rank == b.rank; };
  entries_.erase(std::unique(entries_.begin(), entries_.end(), same), entries_.end());
  std::uint64_t flows = 0;
  for (auto group = entries_.begin(); group != entries_.end();) {
    const auto end =
        std::find_if(group, entries_.end(), [&](const Entry& entry) { return entry.key != group->key; });
    const auto first =
        std::min_element(group, end, [](const Entry& a, const Entry& b) { return a.start_ns < b.start_ns; });
    for (auto entry = group; entry != end; ++entry)
      if (entry != first)
        trace.flow(++flows, {first->rank, first->thread}, first->start_ns, {entry->rank, entry->thread},
                   entry->start_ns);
    group = end;
  }
  return flows;
}

}  // namespace farandole
