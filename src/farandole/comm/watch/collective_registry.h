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
  int ranks = 0;           // of the communicator; 0 if unknown
  std::int32_t owner = 0;  // the thread that made the communicator
  // Calls that the rank has begun or will begin without its threads, because they are queued on a device.
  std::uint32_t begun = 0;
  // The other thread that may begin the next call: the one that made the last call, or a servant that works
  // for the owner and has work; 0 if there is none. Negative numbers are servants.
  std::int32_t caller = 0;
  std::int32_t blocked =
      0;  // the thread that is in the call and cannot leave it before it ends; 0 if there is none
  std::int32_t awaits =
      0;             // the thread that waits until another thread or a device has ended it; 0: none does
  bool open = true;  // false: the communicator was destroyed
};

// The id of the calling thread.
std::int32_t own_thread() noexcept;

// A communicator's entry in the registry.
// Thread safety: none; use from one thread at a time. Any thread may call read() at any time.
class CollectiveEntry {
 public:
  static constexpr std::size_t longest_name = 48;  // longer names are truncated
  // Added to since_ns, it makes a call one in which a rank may wait for any time.
  static constexpr std::int64_t patience_ns = std::int64_t{1} << 58;

  // The calling thread is the owner of the communicator.
  explicit CollectiveEntry(std::uint16_t communicator, int ranks = 0)
      : communicator_(communicator), ranks_(ranks), owner_(own_thread()) {}
  // `operation` must be a string literal. `caller` as CollectiveStatus::caller.
  void enter(std::uint32_t sequence, const char* operation, std::string_view name, std::uint64_t bytes,
             std::int64_t since_ns, std::int32_t caller = 0) noexcept;
  void leave() noexcept { in_flight_.store(false, std::memory_order_release); }
  // These functions set single fields of CollectiveStatus.
  // Thread safety: any thread may call this at any time.
  void set_blocked(std::int32_t thread) noexcept { blocked_.store(thread, std::memory_order_release); }
  void set_awaits(std::int32_t thread) noexcept { awaits_.store(thread, std::memory_order_release); }
  void set_caller(std::int32_t thread) noexcept { caller_.store(thread, std::memory_order_release); }
  void set_queued(std::uint32_t calls) noexcept { queued_.store(calls, std::memory_order_release); }
  std::int32_t servant() const { return -1 - std::int32_t{communicator_}; }
  std::int32_t owner() const { return owner_; }
  CollectiveStatus read() const;

 private:
  const std::uint16_t communicator_;
  const int ranks_;
  const std::int32_t owner_;
  std::atomic<std::uint32_t> version_{0};  // odd while the fields below are being changed
  std::atomic<bool> in_flight_{false};
  std::atomic<std::uint32_t> entered_{0};
  std::atomic<const char*> operation_{""};
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::int64_t> since_ns_{0};
  std::atomic<std::int32_t> caller_{0}, blocked_{0}, awaits_{0};
  std::atomic<std::uint32_t> queued_{0};
  std::array<std::atomic<std::uint64_t>, longest_name / 8> name_{};
};

// While it exists, the registry shows that this thread makes a communicator together with other ranks.
// Thread safety: none; use from one thread at a time.
class SetupCall {
 public:
  static constexpr const char* operation = "setup";

  // Null shows nothing. The entry belongs to setups of the same ranks alone.
  explicit SetupCall(CollectiveEntry* entry);
  ~SetupCall();
  SetupCall(const SetupCall&) = delete;
  SetupCall& operator=(const SetupCall&) = delete;

 private:
  CollectiveEntry* const entry_;
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

  // The number of the end of the session, which no rank can leave before every rank has come there.
  static constexpr std::uint16_t session_end = 0xFFFF;
  // Communicators of other libraries have numbers from here on, below those above.
  static constexpr std::uint16_t first_observed = 0x8000;
  // The number of the setups of communicators, which all ranks of the job make together.
  static constexpr std::uint16_t session_setup = 0xFFFE;
  // The name of the collective in which the ranks meet when they have trained.
  static constexpr const char* training_end = "end of the training";

  // `ranks`: how many the communicator has; 0 if unknown. When the caller drops the entry, the registry keeps
  // its last state until the number is used again.
  std::shared_ptr<CollectiveEntry> add(std::uint16_t communicator, int ranks = 0);
  // Adds an explanation for the collectives of one communicator.
  Explanation explain(std::uint16_t communicator, Explain explain);

  std::vector<CollectiveStatus> read() const;  // by age of the communicator
  // False if the registry has forgotten communicators, because very many were destroyed.
  bool complete() const;
  // An optimizer of this rank has ended a step.
  void count_step() noexcept { steps_.fetch_add(1, std::memory_order_relaxed); }
  std::int64_t steps() const { return steps_.load(std::memory_order_relaxed); }
  std::optional<Meaning> meaning(std::uint16_t communicator, std::string_view name) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<CollectiveEntry>> entries_;
  bool complete_ = true;
  std::atomic<std::int64_t> steps_{0};
  std::list<std::pair<std::uint16_t, Explain>> explanations_;
};

}  // namespace farandole
