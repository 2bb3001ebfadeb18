#include "farandole/timeline/recorder/interned_names.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "farandole/timeline/recorder/recorder_format.h"

namespace farandole {

thread_local constinit std::array<InternedNames::Cached, InternedNames::slots + InternedNames::probes - 1>
    InternedNames::cache_;

InternedNames::InternedNames(RecorderMap& map, std::uint64_t instance, std::mutex& mutex)
    : map_(map), instance_(instance), mutex_(mutex) {
  intern("(unnamed)");
}

InternedNames::Interned InternedNames::interned(std::string_view name) {
  const std::lock_guard lock(mutex_);
  if (const auto found = ids_.find(name); found != ids_.end())
    return {found->second, texts_[found->second].c_str()};
  recorder::Header& header = map_.header();
  const std::string_view kept = name.substr(0, recorder::longest_name);
  const auto length = static_cast<std::uint16_t>(kept.size());
  if (header.names_used + sizeof length + length > map_.geometry.names_bytes)
    return {0, texts_.empty() ? "" : texts_[0].c_str()};
  char* at = map_.names() + header.names_used;
  std::memcpy(at, &length, sizeof length);
  kept.copy(at + sizeof length, kept.size());
  std::atomic_ref(header.names_used)
      .store(header.names_used + sizeof length + length, std::memory_order_release);
  const auto id = static_cast<std::uint32_t>(texts_.size());
  const std::string& text = texts_.emplace_back(name);
  ids_.emplace(text, id);
  return {id, text.c_str()};
}

std::uint32_t InternedNames::search(const char* literal) noexcept {
  const Cached* const first = first_slot(literal);
  for (const Cached* slot = first; slot != first + probes && slot->literal != nullptr; ++slot)
    if (is_name(*slot, literal)) return slot->id;
  return remember(literal);
}

// Reuses the slot of the same literal, an empty slot, or else the slot of the oldest timeline's name.
std::uint32_t InternedNames::remember(const char* literal) noexcept {
  const Interned found = interned(literal);
  Cached* const first = first_slot(literal);
  const auto fits = [&](const Cached& slot) {
    return slot.literal == nullptr || (slot.literal == literal && slot.instance == instance_);
  };
  Cached* slot = std::find_if(first, first + probes, fits);
  if (slot == first + probes)
    slot = std::min_element(first, first + probes,
                            [](const auto& a, const auto& b) { return a.instance < b.instance; });
  *slot = {literal, found.text, instance_, found.id};
  return found.id;
}

}  // namespace farandole
