// Messages among the ranks of a job that are no tensors, over sockets of our own: who is where, addresses of
// shared memory, alerts, clocks, records. It needs no MPI. There is one object per process.
// Thread safety: any thread may call this at any time. Functions say where this is not so.
//
// Every rank listens, and a connection is made with the first message. So the traffic gives the connections
// their shape: a star of nodes, because the first ranks of the nodes act for the others. No rank passes on
// messages, so none is needed for those of others. One thread sends and receives, and answers questions for
// the time at once. The ranks of a node are connected by Unix sockets, those of different nodes by TCP.
//
// Rank 0 publishes an invitation (meeting.h) with a random token. Whoever does not know it is disconnected.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "farandole/base/files/file_bytes.h"
#include "farandole/comm/control/meeting.h"
#include "farandole/comm/control/rank_facts.h"
#include "farandole/timeline/clock/clock_model.h"

namespace farandole {

struct Message {
  int from = 0;
  std::vector<std::byte> bytes;
};

// The bytes of a message that consists of a plain value.
template <typename T>
std::span<const std::byte> byte_view(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(std::span(&value, 1));
}

// std::nullopt if the message has another size.
template <typename T>
std::optional<T> value_of(const std::vector<std::byte>& message) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  if (message.size() != sizeof value) return std::nullopt;
  std::memcpy(&value, message.data(), sizeof value);
  return value;
}

class ControlPlane {
 public:
  using Clock = std::chrono::steady_clock;
  using Channel = std::uint64_t;
  static constexpr int any = -1;

  struct Start {
    int rank = 0, size = 1;
    bool several_nodes = true;  // false: nothing listens for TCP
    MeetingPlace meeting{};
    RankFacts facts = own_facts();  // tests make up nodes
    bool obeys = true;              // end_all() of another rank ends this process
  };
  // Listens.
  // Throws: Error if there are not enough file descriptors or threads.
  explicit ControlPlane(Start start);
  // What was sent gets `patience` to leave this process.
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;
  std::chrono::milliseconds patience{2000};

  // Meets the other ranks, and returns when rank 0 has told all ranks about all. With `limit`, no rank waits
  // longer for those that have not come. Call this once.
  // Throws: Error if this was stopped, or if rank 0 has not come within the limit.
  void join(std::optional<std::chrono::nanoseconds> limit = std::nullopt);
  // join(), wait() and connect() throw from now on.
  void stop();
  bool stopped();

  // Tells all other ranks to end at once with this exit code, or with ExitCode::peer_lost under `farandole
  // run`, and waits a moment until they are told.
  void end_all(int exit_code);

  int rank() const { return rank_; }
  int size() const { return size_; }
  // By rank. Call this after join().
  const std::vector<RankFacts>& ranks() const { return ranks_; }

  // A number for messages among these ranks, the same on each of them, and another one for each call.
  // Collective: every rank of the list must call this in the same order.
  Channel new_channel(std::span<const int> ranks);

  // Never waits. Messages between the same two ranks arrive in order. A message to a rank that has
  // ended is dropped.
  void send(int to, Channel channel, std::span<const std::byte> message);
  // Returns a message that has arrived, of this rank or of any; does not wait.
  std::optional<Message> take(Channel channel, int from = any);
  // Waits for one until `until`.
  // Throws: Error with ExitCode::peer_lost if `from` has closed its connection.
  std::optional<Message> wait(Channel channel, int from = any,
                              std::optional<Clock::time_point> until = std::nullopt);

  // Asks a rank for its time. std::nullopt if it does not answer within `limit`.
  // Thread safety: none; use from one thread at a time.
  std::optional<RoundTrip> ask_time(int of, std::chrono::nanoseconds limit);

  // Makes a connection for other purposes with a rank that also calls this, with the same number, which must
  // not be 0. Two ranks use a number once.
  // Throws: Error if there is none within 30 s.
  OwnedDescriptor connect(int with, std::uint64_t number);

 private:
  struct FrameHead;
  struct Way;
  struct Connection;
  enum class Kind { wake, listener, invites, connecting, greeted, stranger, open, closed };

  void join_others(std::optional<Clock::time_point> until);
  void meet(const std::string& invitation);
  void read_book(std::span<const std::byte> bytes);
  void send_book();
  int first_of(std::uint64_t node) const;
  std::optional<Message> take_from(Channel channel, int from);
  void run();
  Connection& add(OwnedDescriptor socket, Kind kind);
  void accept_all(const Connection& listener);
  Connection& dial_if_needed(int to);
  Connection& dial(int to, std::uint64_t number);
  void try_next_way(Connection& connection);
  void advance(Connection& connection, std::uint32_t events);
  void greet(Connection& connection);
  void welcome(Connection& stranger);
  void check_answer(Connection& connection);
  void open(Connection& connection);
  void read_some(Connection& connection);
  void deliver(Connection& connection);
  void push(Connection& connection, Channel channel, std::span<const std::byte> message);
  void flush(Connection& connection);
  void watch(Connection& connection, std::uint32_t for_events) const;
  void close(Connection& connection);
  void end_late(Clock::time_point now);
  bool has_unsent() const;
  void wake() const;
  std::string invitation() const;
  void read_invitation(const std::string& text);
  std::string name_of(int rank) const;

  const int rank_, size_;
  const MeetingPlace meeting_;
  const bool obeys_;
  OwnedDescriptor epoll_, woken_;
  std::uint64_t token_ = 0;  // proves that a connection comes from a rank of the job
  std::uint64_t name_ = 0;   // in the names of the ranks' Unix sockets, which everybody on the host sees

  std::mutex mutex_;  // guards what follows
  std::condition_variable arrived_;
  std::vector<RankFacts> ranks_;
  std::vector<std::byte> book_;  // the facts of all ranks, once they are known
  std::list<Connection> connections_;
  std::map<int, Connection*> ways_;  // by rank: where messages to it go
  std::set<int> lost_;               // ranks that cannot be reached or have closed their connections
  std::map<Channel, std::deque<Message>> inboxes_;
  // By rank and number, for connect(). Invalid if the connection has failed.
  std::map<std::pair<int, std::uint64_t>, OwnedDescriptor> sockets_;
  std::map<std::uint64_t, std::uint64_t> channels_;  // by hash of the ranks, how many were given
  std::uint64_t questions_ = 0;
  Clock::time_point spin_until_{};
  bool stopped_ = false, ends_ = false;
  std::thread thread_;
};

}  // namespace farandole
