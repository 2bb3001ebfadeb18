#include "farandole/analyzer/model/run_names.h"

#include <utility>

namespace farandole {

void RunNames::adopt(RankModel& rank, const CollectedNames& own) {
  std::vector<std::uint32_t> texts, communicators;
  for (const auto& text : own.texts) {
    const auto [found, is_new] = texts_.try_emplace(text, static_cast<std::uint32_t>(run_.names.size()));
    if (is_new) run_.names.push_back(text);
    texts.push_back(found->second);
  }
  for (const auto& name : own.communicators)
    communicators.push_back(
        communicators_.try_emplace(name, static_cast<std::uint32_t>(communicators_.size())).first->second);
  auto collectives = rank.collectives();  // Before the rank is shifted.
  PackedCollectives packed;
  for (auto& span : collectives) {
    span.name = texts[span.name];
    span.operation = texts[span.operation];
    if (span.what.communicator < communicators.size()) {
      const auto communicator = communicators[span.what.communicator];
      span.matchable = span.matchable && communicator <= UINT16_MAX;
      span.what.communicator = static_cast<std::uint16_t>(communicator);
    }
    packed.append(span);
  }
  rank.packed_collectives.assign(1, std::move(packed));
}

}  // namespace farandole
