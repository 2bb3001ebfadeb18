#include "farandole/timeline/interned_names.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "farandole/timeline/recorder_format.h"

namespace farandole {
namespace {

// The ids of the names that this thread used last, by the literal's address: each in the slot that its hash
// says, or in one of the next.
struct NameCacheEntry {
  const char* literal = nullptr;
  const char* text = nullptr;  // the interned copy: another name may stand at the address now
  std::uint64_t instance = 0;
  std::uint32_t id = 0;
};
constexpr std::size_t log2_slots = 9;  // MPI alone has some 180 names
constexpr std::size_t slots = std::size_t{1} << log2_slots, probes = 8;
constinit thread_local std::array<NameCacheEntry, slots + probes - 1> name_cache;

NameCacheEntry* first_slot(const char* literal) {
  return &name_cache[(reinterpret_cast<std::uintptr_t>(literal) * 0x9E3779B97F4A7C15u) >> (64 - log2_slots)];
}

}  // namespace

InternedNames::InternedNames(RecorderMap& map, std::uint64_t instance) : map_(map), instance_(instance) {
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

std::uint32_t InternedNames::id_of(const char* literal) noexcept {
  const NameCacheEntry* const first = first_slot(literal);
  for (const NameCacheEntry* slot = first; slot != first + probes && slot->literal != nullptr; ++slot)
    if (slot->literal == literal && slot->instance == instance_ && std::strcmp(slot->text, literal) == 0)
      return slot->id;
  return remember(literal);
}

// In the place of what it was, of an empty slot, or else of a name of the oldest timeline.
std::uint32_t InternedNames::remember(const char* literal) noexcept {
  const Interned found = interned(literal);
  NameCacheEntry* const first = first_slot(literal);
  const auto fits = [&](const NameCacheEntry& slot) {
    return slot.literal == nullptr || (slot.literal == literal && slot.instance == instance_);
  };
  NameCacheEntry* slot = std::find_if(first, first + probes, fits);
  if (slot == first + probes)
    slot = std::min_element(first, first + probes,
                            [](const auto& a, const auto& b) { return a.instance < b.instance; });
  *slot = {literal, found.text, instance_, found.id};
  return found.id;
}

}  // namespace farandole
