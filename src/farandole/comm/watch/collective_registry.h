// The registry of collectives in flight of this process. Communicators write into it within a few ns
// and without a lock.
// Thread safety: any thread may call this at any time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace farandole {

// The state of a communicator: its last collective, if there was one.
struct CollectiveStatus {
  std::uint16_t communicator = 0;
  std::uint32_t entered = 0;  // number of collectives begun so far; the last one has sequence entered - 1
  bool in_flight = false;
  std::string_view operation;  // a string literal
  std::string name;
  std::uint64_t bytes = 0;
  std::int64_t since_ns = 0;
};

// A communicator's entry in the registry.
// Thread safety: none; use from one thread at a time. Any thread may call read() at any time.
class CollectiveEntry {
 public:
  static constexpr std::size_t longest_name = 48;  // longer names are truncated

  explicit CollectiveEntry(std::uint16_t communicator) : communicator_(communicator) {}
  // `operation` must be a string literal.
  void enter(std::uint32_t sequence, const char* operation, std::string_view name, std::uint64_t bytes,
             std::int64_t since_ns) noexcept;
  void leave() noexcept { in_flight_.store(false, std::memory_order_release); }
  CollectiveStatus read() const;

 private:
  const std::uint16_t communicator_;
  std::atomic<std::uint32_t> version_{0};  // odd while the fields below are being changed
  std::atomic<bool> in_flight_{false};
  std::atomic<std::uint32_t> entered_{0};
  std::atomic<const char*> operation_{""};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::int64_t> since_ns_{0};
  std::array<std::atomic<std::uint64_t>, longest_name / 8> name_{};
};

class CollectiveRegistry {
 public:
  // The contents of a collective: the parameters of "bucket 3".
  struct Meaning {
    std::vector<std::string> contents;
    std::vector<std::string> awaited;  // contents that this rank has not produced yet
  };
  // The name "" means the communicator's next collective, which this rank has not begun. The watchdog thread
  // calls this while the training thread may be stuck anywhere, so it must not wait for a lock.
  using Explain = std::function<std::optional<Meaning>(std::string_view name)>;
  // Removes an explanation when it is destroyed, and waits if the explanation is in use. It must
  // not outlive the registry.
  using Explanation = std::unique_ptr<void, std::function<void(void*)>>;

  // The entry stays in the registry as long as the caller holds it.
  std::shared_ptr<CollectiveEntry> add(std::uint16_t communicator);
  // Adds an explanation for the collectives of one communicator.
  Explanation explain(std::uint16_t communicator, Explain explain);

  std::vector<CollectiveStatus> read() const;  // by age of the communicator
  std::optional<Meaning> meaning(std::uint16_t communicator, std::string_view name) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<CollectiveEntry>> entries_;
  std::list<std::pair<std::uint16_t, Explain>> explanations_;
};

}  // namespace farandole
