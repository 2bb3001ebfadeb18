// The names in a recorder's file, each there once. Any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "farandole/timeline/recorder_map.h"

namespace farandole {

class InternedNames {
 public:
  // `instance`: a number that no other object of this process has or had. `map` outlives this.
  InternedNames(RecorderMap& map, std::uint64_t instance);

  // Takes a lock. 0, which is "(unnamed)", where the file has no room.
  std::uint32_t intern(std::string_view name) { return interned(name).id; }
  // Takes one only when the calling thread asks for `literal` for the first time, or has asked for some 500
  // others.
  std::uint32_t id_of(const char* literal) noexcept;

 private:
  struct Interned {
    std::uint32_t id;
    const char* text;
  };
  Interned interned(std::string_view name);
  std::uint32_t remember(const char* literal) noexcept;

  RecorderMap& map_;
  const std::uint64_t instance_;
  std::mutex mutex_;  // of what follows, and of the file's names
  std::unordered_map<std::string_view, std::uint32_t> ids_;
  std::deque<std::string> texts_;  // what the keys of `ids_` and the threads' caches point to
};

}  // namespace farandole
