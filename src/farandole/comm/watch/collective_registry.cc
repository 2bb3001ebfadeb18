#include "farandole/comm/watch/collective_registry.h"

#include <algorithm>
#include <cstring>

namespace farandole {

// A sequence lock. Fields are stored with release and loaded with acquire, so a reader that sees a new field
// also sees the odd version that was set before it.
void CollectiveEntry::enter(std::uint32_t sequence, const char* operation, std::string_view name,
                            std::uint64_t bytes, std::int64_t since_ns) noexcept {
  std::array<std::uint64_t, longest_name / 8> words{};
  std::memcpy(words.data(), name.data(), std::min(name.size(), longest_name));
  const auto version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  entered_.store(sequence + 1, std::memory_order_release);
  operation_.store(operation, std::memory_order_release);
  bytes_.store(bytes, std::memory_order_release);
  since_ns_.store(since_ns, std::memory_order_release);
  for (std::size_t i = 0; i < words.size(); ++i) name_[i].store(words[i], std::memory_order_release);
  in_flight_.store(true, std::memory_order_release);
  version_.store(version + 2, std::memory_order_release);
}

CollectiveStatus CollectiveEntry::read() const {
  for (;;) {
    CollectiveStatus call;
    const auto version = version_.load(std::memory_order_acquire);
    std::array<char, longest_name> name;
    for (std::size_t i = 0; i < name_.size(); ++i) {
      const auto word = name_[i].load(std::memory_order_acquire);
      std::memcpy(name.data() + i * sizeof word, &word, sizeof word);
    }
    call.communicator = communicator_;
    call.entered = entered_.load(std::memory_order_acquire);
    call.in_flight = in_flight_.load(std::memory_order_acquire);
    call.operation = operation_.load(std::memory_order_acquire);
    call.bytes = bytes_.load(std::memory_order_acquire);
    call.since_ns = since_ns_.load(std::memory_order_acquire);
    if (version % 2 != 0 || version_.load(std::memory_order_relaxed) != version) continue;
    call.name.assign(name.data(), ::strnlen(name.data(), name.size()));
    return call;
  }
}

std::shared_ptr<CollectiveEntry> CollectiveRegistry::add(std::uint16_t communicator) {
  auto entry = std::make_shared<CollectiveEntry>(communicator);
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [](const auto& one) { return one.expired(); });
  entries_.push_back(entry);
  return entry;
}

CollectiveRegistry::Explanation CollectiveRegistry::explain(std::uint16_t communicator, Explain explain) {
  const std::lock_guard lock(mutex_);
  auto* entry = &explanations_.emplace_back(communicator, std::move(explain));
  return Explanation(entry, [this](void* which) {
    const std::lock_guard held(mutex_);
    explanations_.remove_if([which](const auto& one) { return &one == which; });
  });
}

std::vector<CollectiveStatus> CollectiveRegistry::read() const {
  std::vector<CollectiveStatus> calls;
  const std::lock_guard lock(mutex_);
  for (const auto& weak : entries_)
    if (const auto entry = weak.lock()) calls.push_back(entry->read());
  return calls;
}

std::optional<CollectiveRegistry::Meaning> CollectiveRegistry::meaning(std::uint16_t communicator,
                                                                       std::string_view name) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, explain] : explanations_)
    if (number == communicator)
      if (auto meaning = explain(name)) return meaning;
  return std::nullopt;
}

}  // namespace farandole
