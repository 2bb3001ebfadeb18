// The names in a recorder's file, each there once. Any thread.
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
  // `instance`: a number that no other object of this process has or had. `map` outlives this.
  InternedNames(RecorderMap& map, std::uint64_t instance);

  // Takes a lock. 0, which is "(unnamed)", where the file has no room.
  std::uint32_t intern(std::string_view name) { return interned(name).id; }
  // Takes one only when the calling thread asks for `literal` for the first time, or has asked for some 500
  // others.
  std::uint32_t id_of(const char* literal) noexcept {
    const Cached& first = *first_slot(literal);
    return is_name(first, literal) ? first.id : search(literal);
  }

 private:
  // The ids of the names that a thread used last, by the literal's address: each in the slot that its hash
  // says, or in one of the next.
  struct Cached {
    const char* literal = nullptr;
    const char* text = nullptr;  // the interned copy: another name may stand at the address now
    std::uint64_t instance = 0;
    std::uint32_t id = 0;
  };
  static constexpr std::size_t log2_slots = 9;  // MPI alone has some 180 names
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
  std::mutex mutex_;  // of what follows, and of the file's names
  std::unordered_map<std::string_view, std::uint32_t> ids_;
  std::deque<std::string> texts_;  // what the keys of `ids_` and the threads' caches point to
};

}  // namespace farandole
