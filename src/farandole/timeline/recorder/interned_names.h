// The names in a recorder's file, each stored once.
// Thread safety: any thread may call this at any time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "farandole/timeline/recorder/recorder_map.h"

namespace farandole {

class InternedNames {
 public:
  // `instance` is unique among all objects of this process, past and present. `map` and `mutex`, which this
  // object uses alone, must outlive it. A fork must hold the mutex (RecorderRings does).
  InternedNames(RecorderMap& map, std::uint64_t instance, std::mutex& mutex);

  // Takes a lock. Returns 0, which stands for "(unnamed)", if the file has no space left.
  std::uint32_t intern(std::string_view name) { return interned(name).id; }
  // Takes a lock only if the calling thread asks for `literal` for the first time or has asked for about
  // 500 other names since.
  std::uint32_t id_of(const char* literal) noexcept {
    const Cached& first = *first_slot(literal);
    return is_name(first, literal) ? first.id : search(literal);
  }

 private:
  // A cache of the ids that a thread used last, keyed by the literal's address. An entry is in the slot that
  // its hash selects or in one of the following slots.
  struct Cached {
    const char* literal = nullptr;
    const char* text = nullptr;  // the interned copy; it detects that the address now holds another name
    std::uint64_t instance = 0;
    std::uint32_t id = 0;
  };
  static constexpr std::size_t log2_slots = 9;  // MPI alone has about 180 names
  static constexpr std::size_t slots = std::size_t{1} << log2_slots, probes = 8;
  static thread_local constinit std::array<Cached, slots + probes - 1> cache_;

  static Cached* first_slot(const char* literal) {
    return &cache_[(reinterpret_cast<std::uintptr_t>(literal) * 0x9E3779B97F4A7C15u) >> (64 - log2_slots)];
  }
  bool is_name(const Cached& slot, const char* literal) const {
    return slot.literal == literal && slot.instance == instance_ && std::strcmp(slot.text, literal) == 0;
  }

  struct Interned {
    std::uint32_t id;
    const char* text;
  };
  Interned interned(std::string_view name);
  std::uint32_t search(const char* literal) noexcept;
  std::uint32_t remember(const char* literal) noexcept;

  RecorderMap& map_;
  const std::uint64_t instance_;
  std::mutex& mutex_;  // protects the members below and the names in the file
  std::unordered_map<std::string_view, std::uint32_t> ids_;
  std::deque<std::string> texts_;  // owns the texts that the keys of `ids_` and the threads' caches point to
};

}  // namespace farandole
