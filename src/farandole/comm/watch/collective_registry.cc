#include "farandole/comm/watch/collective_registry.h"

#include <algorithm>
#include <cstring>
#include <sys/syscall.h>
#include <unistd.h>

#include "farandole/base/clock.h"

namespace farandole {

std::int32_t own_thread() noexcept {
  static constinit thread_local std::int32_t own = 0;
  if (own == 0) own = static_cast<std::int32_t>(::syscall(SYS_gettid));
  return own;
}

// A sequence lock. Fields are stored with release and loaded with acquire, so a reader that sees a new field
// also sees the odd version that was set before it.
void CollectiveEntry::enter(std::uint32_t sequence, const char* operation, std::string_view name,
                            std::uint64_t bytes, std::int64_t since_ns, std::int32_t caller) noexcept {
  std::array<std::uint64_t, longest_name / 8> words{};
  std::memcpy(words.data(), name.data(), std::min(name.size(), longest_name));
  const auto version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  entered_.store(sequence + 1, std::memory_order_release);
  operation_.store(operation, std::memory_order_release);
  bytes_.store(bytes, std::memory_order_release);
  since_ns_.store(since_ns, std::memory_order_release);
  caller_.store(caller, std::memory_order_release);
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
    call.ranks = ranks_;
    call.owner = owner_;
    call.entered = entered_.load(std::memory_order_acquire);
    call.in_flight = in_flight_.load(std::memory_order_acquire);
    call.operation = operation_.load(std::memory_order_acquire);
    call.bytes = bytes_.load(std::memory_order_acquire);
    call.since_ns = since_ns_.load(std::memory_order_acquire);
    call.caller = caller_.load(std::memory_order_acquire);
    call.blocked = blocked_.load(std::memory_order_acquire);
    call.awaits = awaits_.load(std::memory_order_acquire);
    call.begun = std::max(call.entered, queued_.load(std::memory_order_acquire));
    if (version % 2 != 0 || version_.load(std::memory_order_relaxed) != version) continue;
    call.name.assign(name.data(), ::strnlen(name.data(), name.size()));
    return call;
  }
}

SetupCall::SetupCall(CollectiveEntry* entry) : entry_(entry) {
  if (entry_ == nullptr) return;
  const auto thread = own_thread();
  entry_->set_blocked(thread);
  entry_->enter(entry_->read().entered, operation, "", 0, now_ns(), thread == entry_->owner() ? 0 : thread);
}

SetupCall::~SetupCall() {
  if (entry_ != nullptr) entry_->leave();
}

std::shared_ptr<CollectiveEntry> CollectiveRegistry::add(std::uint16_t communicator, int ranks) {
  constexpr std::ptrdiff_t most_destroyed = 256;
  auto entry = std::make_shared<CollectiveEntry>(communicator, ranks);
  const std::lock_guard lock(mutex_);
  const auto destroyed = [](const auto& one) { return one.use_count() == 1; };
  std::erase_if(entries_,
                [&](const auto& one) { return destroyed(one) && one->read().communicator == communicator; });
  if (std::count_if(entries_.begin(), entries_.end(), destroyed) >= most_destroyed) {
    entries_.erase(std::find_if(entries_.begin(), entries_.end(), destroyed));
    complete_ = false;
  }
  entries_.push_back(entry);
  return entry;
}

bool CollectiveRegistry::complete() const {
  const std::lock_guard lock(mutex_);
  return complete_;
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
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    auto call = (*entry)->read();
    call.open = entry->use_count() > 1;
    call.in_flight = call.in_flight && call.open;
    const bool replaced = !call.open && std::any_of(entry + 1, entries_.end(), [&](const auto& later) {
      return later->read().communicator == call.communicator;
    });
    if (!replaced) calls.push_back(std::move(call));
  }
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
