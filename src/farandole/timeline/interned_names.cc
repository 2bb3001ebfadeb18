#include "farandole/timeline/interned_names.h"

#include <array>
#include <atomic>
#include <cstring>

#include "farandole/timeline/recorder_format.h"

namespace farandole {
namespace {

// The ids of the names that this thread used last, by the literal's address.
struct NameCacheEntry {
  const char* literal = nullptr;
  const char* text = nullptr;  // the interned copy: another name may stand at the address now
  std::uint64_t instance = 0;
  std::uint32_t id = 0;
};
constinit thread_local std::array<NameCacheEntry, 64> name_cache;

}  // namespace

InternedNames::InternedNames(RecorderMap& map, std::uint64_t instance) : map_(map), instance_(instance) {
  intern("(unnamed)");
}

std::uint32_t InternedNames::intern(std::string_view name) {
  const std::lock_guard lock(mutex_);
  if (const auto found = ids_.find(name); found != ids_.end()) return found->second;
  recorder::Header& header = map_.header();
  const std::string_view kept = name.substr(0, recorder::longest_name);
  const auto length = static_cast<std::uint16_t>(kept.size());
  if (header.names_used + sizeof length + length > map_.geometry.names_bytes) return 0;
  char* at = map_.names() + header.names_used;
  std::memcpy(at, &length, sizeof length);
  kept.copy(at + sizeof length, kept.size());
  std::atomic_ref(header.names_used)
      .store(header.names_used + sizeof length + length, std::memory_order_release);
  const auto id = static_cast<std::uint32_t>(texts_.size());
  ids_.emplace(texts_.emplace_back(name), id);
  return id;
}

const char* InternedNames::text_of(std::uint32_t id) {
  const std::lock_guard lock(mutex_);
  return texts_[id].c_str();
}

std::uint32_t InternedNames::id_of(const char* literal) noexcept {
  NameCacheEntry& cached =
      name_cache[(reinterpret_cast<std::uintptr_t>(literal) * 0x9E3779B97F4A7C15u) >> 58];
  if (cached.literal != literal || cached.instance != instance_ || std::strcmp(cached.text, literal) != 0) {
    const std::uint32_t id = intern(literal);
    cached = {literal, text_of(id), instance_, id};
  }
  return cached.id;
}

}  // namespace farandole
