#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <random>
#include <string_view>
#include <sys/socket.h>
#include <tuple>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/host.h"
#include "farandole/base/text/phrases.h"
#include "farandole/comm/net/socket_link.h"

namespace farandole {
namespace {

using Clock = std::chrono::steady_clock;
// For all connections of a rank. Each address gets a part of it, in which the kernel asks again at
// least once: while a busy node makes and removes network namespaces, first packets of connections were
// lost for seconds.
constexpr std::chrono::seconds connect_limit{30};
// A stranger that connects may say nothing. Nobody waits for it.
constexpr std::chrono::seconds greeting_limit{5};
constexpr std::size_t most_strangers = 256;  // that have said nothing yet
constexpr std::size_t most_addresses = 8;

// An address at which this rank listens, and the network in which it lies. Sent to the peers unchanged.
struct Address {
  sockaddr_storage address{};  // with the port
  sockaddr_storage mask{};
  long speed = 0;  // Mbit/s; 0 if it is unknown or the interface is not a device, as a bridge of containers
  bool loopback = false;
};

// What a rank tells its peers before they connect.
struct Invitation {
  std::uint64_t token = 0;   // proves that a connection comes from a rank of the job
  std::uint64_t answer = 0;  // proves that this rank has accepted it: another host may have the same address
  std::uint16_t addresses = 0;
  char host[64] = {};
  std::array<Address, most_addresses> address{};
};

// The first bytes on every connection.
struct Greeting {
  std::uint64_t token = 0;
  std::int32_t from = 0;  // rank in the group
  std::int32_t unused = 0;
};

std::span<const std::byte> address_bytes(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET)
    return std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in&>(address).sin_addr, 1));
  return std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, 1));
}

bool same_network(const Address& own, const Address& theirs) {
  if (own.address.ss_family != theirs.address.ss_family) return false;
  const auto a = address_bytes(own.address), b = address_bytes(theirs.address),
             mask = address_bytes(own.mask);
  for (std::size_t i = 0; i < a.size(); ++i)
    if ((a[i] & mask[i]) != (b[i] & mask[i])) return false;
  return true;
}

bool same_address(const Address& own, const Address& theirs) {
  if (own.address.ss_family != theirs.address.ss_family) return false;
  return std::ranges::equal(address_bytes(own.address), address_bytes(theirs.address));
}

long speed_of(const std::string& interface) {
  const auto folder = std::filesystem::path("/sys/class/net") / interface;
  std::error_code error;
  long mbit = 0;
  if (std::filesystem::exists(folder / "device", error)) std::ifstream(folder / "speed") >> mbit;
  return std::max(mbit, 0L);
}

// The interfaces that FARANDOLE_INTERFACE names; empty if it is not set.
std::vector<std::string> requested_interfaces() {
  const char* const text = std::getenv("FARANDOLE_INTERFACE");
  return text != nullptr && *text != '\0' ? split_at_commas(text) : std::vector<std::string>();
}

std::vector<Address> own_addresses() {
  const auto requested = requested_interfaces();
  std::vector<Address> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  for (const auto* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_netmask == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const std::string name = at->ifa_name;
    if (!requested.empty() && std::ranges::find(requested, name) == requested.end()) continue;
    Address address;
    const std::size_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.address, at->ifa_addr, bytes);
    std::memcpy(&address.mask, at->ifa_netmask, bytes);
    address.speed = speed_of(name);
    address.loopback = (at->ifa_flags & IFF_LOOPBACK) != 0;
    if (family == AF_INET6 &&
        IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<sockaddr_in6&>(address.address).sin6_addr))
      continue;
    found.push_back(address);
  }
  ::freeifaddrs(list);
  std::ranges::stable_sort(found, [](const auto& a, const auto& b) {
    return std::tuple(a.loopback, a.speed) > std::tuple(b.loopback, b.speed);
  });
  if (found.size() > most_addresses) found.resize(most_addresses);
  return found;
}

// Before the socket is connected, because a connection that BBR began stays timed. BBR sends at a rate that
// it guesses, by a timer, which is made for long paths. Between two hosts of one switch, a message of 32 MiB
// took three times as long with it. Each Linux has Reno, and lets each user choose it.
void replace_bbr(const OwnedDescriptor& socket) {
  std::array<char, 16> name{};
  socklen_t bytes = name.size() - 1;
  if (::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes) != 0 ||
      !std::string_view(name.data()).starts_with("bbr"))
    return;
  constexpr std::string_view reno = "reno";
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, reno.data(), reno.size());
}

std::uint16_t& port_of(sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(address).sin_port;
}

socklen_t size_of_address(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

OwnedDescriptor new_socket(int family) {
  OwnedDescriptor socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() >= 0) replace_bbr(socket);  // Connections that a listener accepts get it from there.
  return socket;
}

// Listens at `address` and puts the port into it. The descriptor is invalid if this fails.
OwnedDescriptor listen_at(sockaddr_storage& address) {
  auto socket = new_socket(address.ss_family);
  const int off = 0;
  if (address.ss_family == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  auto bytes = size_of_address(address);
  if (socket.get() < 0 || ::bind(socket.get(), generic, bytes) != 0 || ::listen(socket.get(), 1024) != 0 ||
      ::getsockname(socket.get(), generic, &bytes) != 0)
    return OwnedDescriptor();
  return socket;
}

// Listens at the addresses of the interfaces that the user names, or else at all addresses. Puts the ports
// into `addresses` and removes those at which this rank cannot listen.
std::vector<OwnedDescriptor> listen_at(std::vector<Address>& addresses) {
  std::vector<OwnedDescriptor> listeners;
  if (!requested_interfaces().empty()) {
    std::erase_if(addresses, [&](Address& one) {
      auto socket = listen_at(one.address);
      const bool failed = socket.get() < 0;
      if (!failed) listeners.push_back(std::move(socket));
      return failed;
    });
    return listeners;
  }
  for (const int family : {AF_INET6, AF_INET}) {
    sockaddr_storage any{};
    any.ss_family = static_cast<sa_family_t>(family);
    auto socket = listen_at(any);
    if (socket.get() < 0) continue;
    if (family == AF_INET)
      std::erase_if(addresses, [](auto& one) { return one.address.ss_family != AF_INET; });
    for (auto& one : addresses) port_of(one.address) = port_of(any);
    listeners.push_back(std::move(socket));
    return listeners;
  }
  addresses.clear();
  return listeners;
}

bool send_all(int socket, const auto& message) {
  return ::send(socket, &message, sizeof message, MSG_NOSIGNAL) == sizeof message;
}

// Bytes of a message that arrive one after the other.
template <class Message>
struct Incoming {
  Message message{};
  std::size_t received = 0;

  bool complete() const { return received == sizeof message; }
  // Takes what has arrived. Returns false if the connection is over.
  bool take(int socket) {
    const ssize_t moved =
        ::recv(socket, reinterpret_cast<std::byte*>(&message) + received, sizeof message - received, 0);
    if (moved > 0) received += static_cast<std::size_t>(moved);
    return moved > 0 || (moved < 0 && (errno == EAGAIN || errno == EINTR));
  }
};

// Addresses of the peer, the most promising ones first: on the same host loopback, whose address
// never goes away.
std::vector<Address> reachable(const Invitation& own, const Invitation& theirs) {
  const bool same_host = std::strcmp(own.host, theirs.host) == 0;
  std::vector<Address> first, last;
  for (std::size_t i = 0; i < theirs.addresses; ++i) {
    const auto& address = theirs.address[i];
    bool is_own = false, near = false;
    for (std::size_t k = 0; k < own.addresses; ++k) {
      is_own = is_own || same_address(own.address[k], address);
      near = near || same_network(own.address[k], address);
    }
    if (!same_host && (is_own || address.loopback))
      continue;  // a bridge may have the same address everywhere
    (near ? first : last).push_back(address);
  }
  first.insert(first.end(), last.begin(), last.end());
  return first;
}

// Higher ranks connect to lower ranks: they send a greeting, and the lower rank accepts one connection
// by its answer. One loop serves all of this, so no stranger, slow rank or address behind a firewall
// holds up others.
class Connector {
 public:
  explicit Connector(Communicator& group)
      : own_(static_cast<std::size_t>(group.rank)),
        invitations_(static_cast<std::size_t>(group.size)),
        peers_(own_),
        sockets_(invitations_.size()) {
    Invitation own;
    std::random_device random;
    for (auto* number : {&own.token, &own.answer}) *number = (std::uint64_t{random()} << 32) | random();
    auto addresses = own_addresses();
    listeners_ = listen_at(addresses);
    own.addresses = static_cast<std::uint16_t>(addresses.size());
    std::copy(addresses.begin(), addresses.end(), own.address.begin());
    host_name().copy(own.host, sizeof own.host - 1);
    group.all_gather("addresses of the ranks", &own, invitations_.data(),
                     std::vector<std::size_t>(invitations_.size(), sizeof own));
  }

  std::string host_of(std::size_t rank) const { return invitations_[rank].host; }

  // Throws: Error if a connection cannot be made.
  std::vector<OwnedDescriptor> connect() {
    allow_open_files(sockets_.size() + most_strangers, "use fewer nodes, or --transport mpi");
    // All ranks see this at once, so none waits for another one until the limit.
    for (const auto& invitation : invitations_)
      if (invitation.addresses == 0)
        throw Error(fmt::format("{} has no address at which it can listen for TCP", invitation.host));
    for (std::size_t peer = 0; peer < own_; ++peer)
      peers_[peer].addresses = reachable(invitations_[own_], invitations_[peer]);
    for (begin_attempts(); missing() < sockets_.size(); begin_attempts()) serve();
    return std::move(sockets_);
  }

 private:
  // The way to a lower rank.
  struct Peer {
    std::vector<Address> addresses;
    std::size_t tried = 0;        // so many of the addresses
    std::size_t open = 0;         // attempts
    Clock::time_point next_at{};  // The next address is tried then, or when no attempt is left.
  };
  // Several addresses of a peer may be tried at once. It answers at one of them.
  struct Attempt {
    OwnedDescriptor socket;
    std::size_t peer = 0;
    bool greeted = false;
    Incoming<std::uint64_t> answer{};
    bool over = false;
  };
  struct Stranger {
    OwnedDescriptor socket;
    Clock::time_point until;
    Incoming<Greeting> greeting{};
    bool over = false;
  };

  // Returns the first rank without a connection; the size of the group if there is none.
  std::size_t missing() const {
    for (std::size_t rank = 0; rank < sockets_.size(); ++rank)
      if (rank != own_ && sockets_[rank].get() < 0) return rank;
    return sockets_.size();
  }

  void begin_attempts() {
    for (std::size_t i = 0; i < own_; ++i) {
      auto& peer = peers_[i];
      if (sockets_[i].get() >= 0) continue;
      while (peer.tried < peer.addresses.size() && (peer.open == 0 || Clock::now() >= peer.next_at)) {
        // An address behind a firewall must not take the time of the others.
        peer.next_at = Clock::now() + connect_limit / static_cast<int>(peer.addresses.size() + 1);
        begin_attempt(i, peer.addresses[peer.tried++].address);
      }
      if (peer.open == 0) throw unreachable(i);
    }
  }

  void begin_attempt(std::size_t peer, const sockaddr_storage& address) {
    auto socket = new_socket(address.ss_family);
    const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
    if (socket.get() < 0 ||
        (::connect(socket.get(), generic, size_of_address(address)) != 0 && errno != EINPROGRESS))
      return;
    attempts_.push_back({std::move(socket), peer});
    ++peers_[peer].open;
  }

  Error unreachable(std::size_t peer) const {
    return Error(fmt::format("no TCP connection to {} can be made (tried {} addresses)",
                             invitations_[peer].host, peers_[peer].tried));
  }

  // Waits until something happens or the next address is to be tried, and handles it.
  void serve() {
    auto until = until_;
    std::vector<pollfd> waiting;
    for (const auto& listener : listeners_) waiting.push_back({listener.get(), POLLIN, 0});
    for (const auto& attempt : attempts_) {
      waiting.push_back({attempt.socket.get(), static_cast<short>(attempt.greeted ? POLLIN : POLLOUT), 0});
      const auto& peer = peers_[attempt.peer];
      if (peer.tried < peer.addresses.size()) until = std::min(until, peer.next_at);
    }
    for (const auto& stranger : strangers_) {
      waiting.push_back({stranger.socket.get(), POLLIN, 0});
      until = std::min(until, stranger.until);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    ::poll(waiting.data(), waiting.size(), static_cast<int>(std::max<std::int64_t>(left, 0)));
    auto next = waiting.begin() + static_cast<std::ptrdiff_t>(listeners_.size());
    for (auto& attempt : attempts_)
      if ((next++)->revents != 0) advance(attempt);
    for (auto& stranger : strangers_)
      if ((next++)->revents != 0) listen_to(stranger);
    for (std::size_t i = 0; i < listeners_.size(); ++i)
      if (waiting[i].revents != 0) accept_all(listeners_[i].get());
    forget();
    if (const auto rank = missing(); Clock::now() >= until_ && rank < sockets_.size())
      throw rank < own_ ? unreachable(rank)
                        : Error("a rank of another node did not connect to this node by TCP");
  }

  void advance(Attempt& attempt) {
    const int socket = attempt.socket.get();
    if (!attempt.greeted) {
      int error = 0;
      socklen_t bytes = sizeof error;
      attempt.greeted =
          ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error == 0 &&
          send_all(socket, Greeting{invitations_[attempt.peer].token, static_cast<std::int32_t>(own_)});
      attempt.over = !attempt.greeted;
      return;
    }
    attempt.over = !attempt.answer.take(socket);
    if (!attempt.answer.complete()) return;
    attempt.over = true;
    if (attempt.answer.message == invitations_[attempt.peer].answer && sockets_[attempt.peer].get() < 0)
      sockets_[attempt.peer] = std::move(attempt.socket);
  }

  void listen_to(Stranger& stranger) {
    stranger.over = !stranger.greeting.take(stranger.socket.get());
    if (!stranger.greeting.complete()) return;
    stranger.over = true;
    const auto& greeting = stranger.greeting.message;
    const auto from = static_cast<std::size_t>(greeting.from);
    const auto& own = invitations_[own_];
    if (greeting.token != own.token || from <= own_ || from >= sockets_.size() || sockets_[from].get() >= 0)
      return;
    if (send_all(stranger.socket.get(), own.answer)) sockets_[from] = std::move(stranger.socket);
  }

  void accept_all(int listener) {
    for (;;) {
      OwnedDescriptor socket(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      const bool too_many = socket.get() < 0 && (errno == EMFILE || errno == ENFILE);
      if (too_many && strangers_.empty())
        throw Error("accept a connection of another node: too many open files");
      if (socket.get() < 0 && errno != EINTR && errno != ECONNABORTED && !too_many) return;
      // A rank sends its greeting at once, so the connection that has said nothing for longest is no rank's.
      if (too_many || strangers_.size() >= most_strangers) strangers_.pop_front();
      if (socket.get() < 0) continue;
      strangers_.push_back({std::move(socket), Clock::now() + greeting_limit});
      listen_to(strangers_.back());
      if (strangers_.back().over) strangers_.pop_back();
    }
  }

  void forget() {
    for (auto& attempt : attempts_) {
      attempt.over |= sockets_[attempt.peer].get() >= 0;
      if (attempt.over) --peers_[attempt.peer].open;
    }
    std::erase_if(attempts_, [](const auto& attempt) { return attempt.over; });
    const auto now = Clock::now();
    std::erase_if(strangers_, [&](const auto& stranger) { return stranger.over || now >= stranger.until; });
  }

  const std::size_t own_;  // rank
  const Clock::time_point until_ = Clock::now() + connect_limit;
  std::vector<OwnedDescriptor> listeners_;
  std::vector<Invitation> invitations_;
  std::vector<Peer> peers_;  // the lower ranks
  std::vector<Attempt> attempts_;
  std::deque<Stranger> strangers_;
  std::vector<OwnedDescriptor> sockets_;
};

// Throws: Error on all ranks, with the text of the lowest rank that has one.
void agree_on_success(Communicator& group, const std::string& problem) {
  int failed = problem.empty() ? group.size : group.rank;
  group.allreduce("connections", &failed, 1, DType::int32, ReduceOp::min);
  if (failed == group.size) return;
  char text[200] = {};
  problem.copy(text, sizeof text - 1);
  group.broadcast("reason", text, sizeof text, failed);
  throw Error(text);
}

}  // namespace

std::vector<std::unique_ptr<Link>> connect_sockets(Communicator& group, std::span<const int> world_ranks) {
  std::string problem;
  std::vector<OwnedDescriptor> sockets;
  std::vector<std::unique_ptr<Link>> links(static_cast<std::size_t>(group.size));
  Connector connector(group);
  try {
    sockets = connector.connect();
  } catch (const Error& error) {
    problem = error.what();
  }
  agree_on_success(group, problem);
  for (std::size_t r = 0; r < links.size(); ++r)
    if (sockets[r].get() >= 0)
      links[r] = std::make_unique<SocketLink>(
          std::move(sockets[r]), fmt::format("rank {} on {}", world_ranks[r], connector.host_of(r)));
  return links;
}

}  // namespace farandole
