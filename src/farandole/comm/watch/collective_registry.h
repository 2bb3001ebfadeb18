// The collectives that this process is in, for whoever watches it. Communicators write, at a few ns a call
// and without a lock; any thread reads.
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

// One communicator's last collective, or none yet.
struct CollectiveStatus {
  std::uint16_t communicator = 0;
  std::uint32_t entered = 0;  // collectives begun so far; the last has sequence entered - 1
  bool in_flight = false;
  std::string_view operation;  // a literal
  std::string name;
  std::uint64_t bytes = 0;
  std::int64_t since_ns = 0;
};

// A communicator's entry in the registry. One thread at a time enters and leaves.
class CollectiveEntry {
 public:
  static constexpr std::size_t longest_name = 48;  // a longer one is cut

  explicit CollectiveEntry(std::uint16_t communicator) : communicator_(communicator) {}
  // `operation` is a literal.
  void enter(std::uint32_t sequence, const char* operation, std::string_view name, std::uint64_t bytes,
             std::int64_t since_ns) noexcept;
  void leave() noexcept { in_flight_.store(false, std::memory_order_release); }
  CollectiveStatus read() const;

 private:
  const std::uint16_t communicator_;
  std::atomic<std::uint32_t> version_{0};  // odd while the fields below change
  std::atomic<bool> in_flight_{false};
  std::atomic<std::uint32_t> entered_{0};
  std::atomic<const char*> operation_{""};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::int64_t> since_ns_{0};
  std::array<std::atomic<std::uint64_t>, longest_name / 8> name_{};
};

class CollectiveRegistry {
 public:
  // What a collective's name stands for: the parameters of "bucket 3".
  struct Meaning {
    std::vector<std::string> contents;
    std::vector<std::string> awaited;  // those of them that this rank has not produced yet
  };
  // For name "": the communicator's next collective, which this rank has not begun. Called by the watching
  // thread while the training thread may be stuck anywhere: must not wait for a lock.
  using Explain = std::function<std::optional<Meaning>(std::string_view name)>;
  // Ends an explanation with its scope; waits for one that is being given. Must not outlive the registry.
  using Explanation = std::unique_ptr<void, std::function<void(void*)>>;

  // The entry stays in the registry as long as anybody else holds it.
  std::shared_ptr<CollectiveEntry> add(std::uint16_t communicator);
  // For one communicator's collectives.
  Explanation explain(std::uint16_t communicator, Explain explain);

  std::vector<CollectiveStatus> read() const;  // by age of the communicator
  std::optional<Meaning> meaning(std::uint16_t communicator, std::string_view name) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<CollectiveEntry>> entries_;
  std::list<std::pair<std::uint16_t, Explain>> explanations_;
};

}  // namespace farandole
