#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
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
constexpr std::chrono::seconds greeting_limit{1};  // A stranger that connects may say nothing.
constexpr std::size_t most_addresses = 8;

// An address of this host and the network in which it lies. Sent to the peers unchanged.
struct Address {
  sockaddr_storage address{};
  sockaddr_storage mask{};
  long speed = 0;  // Mbit/s; 0 if it is unknown or the interface is not a device, as a bridge of containers
  bool loopback = false;
};

// What a rank tells its peers before they connect.
struct Invitation {
  std::uint64_t token = 0;  // proves that a connection comes from a rank of the job
  std::uint16_t port = 0;
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

class Listener {
 public:
  Listener() : socket_(::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    sockaddr_storage any{};
    const int off = 0;
    if (socket_.get() >= 0) {
      ::setsockopt(socket_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      any.ss_family = AF_INET6;
    } else {
      socket_ = OwnedDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      any.ss_family = AF_INET;
    }
    replace_bbr(socket_);  // Connections that are accepted get it from here.
    auto* const address = reinterpret_cast<sockaddr*>(&any);
    socklen_t bytes = sizeof any;
    if (socket_.get() < 0 || ::bind(socket_.get(), address, bytes) != 0 ||
        ::listen(socket_.get(), 1024) != 0 || ::getsockname(socket_.get(), address, &bytes) != 0)
      return;
    port_ = any.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(any).sin6_port
                                      : reinterpret_cast<sockaddr_in&>(any).sin_port;
  }
  std::uint16_t port() const { return port_; }  // in network order; 0 if this rank cannot listen
  int descriptor() const { return socket_.get(); }
  OwnedDescriptor accept() const {
    return OwnedDescriptor(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  }

 private:
  OwnedDescriptor socket_;
  std::uint16_t port_ = 0;
};

// False if the time ran out.
bool wait_for(int descriptor, short events, Clock::time_point until) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd one{descriptor, events, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::max<long>(left, 0)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

// An invalid descriptor if nobody answers at this address.
OwnedDescriptor try_connect(Address address, std::uint16_t port, Clock::time_point until) {
  OwnedDescriptor socket(::socket(address.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return socket;
  replace_bbr(socket);
  const bool v4 = address.address.ss_family == AF_INET;
  if (v4)
    reinterpret_cast<sockaddr_in&>(address.address).sin_port = port;
  else
    reinterpret_cast<sockaddr_in6&>(address.address).sin6_port = port;
  const auto bytes = static_cast<socklen_t>(v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.address), bytes) != 0) {
    if (errno != EINPROGRESS) return OwnedDescriptor();
    int error = 0;
    socklen_t length = sizeof error;
    if (!wait_for(socket.get(), POLLOUT, until)) return OwnedDescriptor();
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0)
      return OwnedDescriptor();
  }
  return socket;
}

bool send_all(int socket, const Greeting& greeting) {
  return ::send(socket, &greeting, sizeof greeting, MSG_NOSIGNAL) == sizeof greeting;
}

bool receive_all(int socket, Greeting& greeting, Clock::time_point until) {
  auto* at = reinterpret_cast<std::byte*>(&greeting);
  for (std::size_t left = sizeof greeting; left > 0;) {
    if (!wait_for(socket, POLLIN, until)) return false;
    const ssize_t moved = ::recv(socket, at, left, 0);
    if (moved == 0 || (moved < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (moved < 0) continue;
    at += moved;
    left -= static_cast<std::size_t>(moved);
  }
  return true;
}

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

// Higher ranks connect to lower ranks.
class Connector {
 public:
  explicit Connector(Communicator& group)
      : own_(static_cast<std::size_t>(group.rank)),
        invitations_(static_cast<std::size_t>(group.size)),
        sockets_(invitations_.size()) {
    Invitation own;
    std::random_device random;
    own.token = (std::uint64_t{random()} << 32) | random();
    own.port = listener_.port();
    const auto addresses = own_addresses();
    own.addresses = static_cast<std::uint16_t>(addresses.size());
    std::copy(addresses.begin(), addresses.end(), own.address.begin());
    host_name().copy(own.host, sizeof own.host - 1);
    group.all_gather("addresses of the ranks", &own, invitations_.data(),
                     std::vector<std::size_t>(invitations_.size(), sizeof own));
  }

  std::string host_of(std::size_t rank) const { return invitations_[rank].host; }

  // Throws: Error if a connection cannot be made.
  std::vector<OwnedDescriptor> connect() {
    allow_open_files(sockets_.size(), "use fewer nodes, or --transport mpi");
    // All ranks see this at once, so none waits for another one until the limit.
    for (const auto& invitation : invitations_) check(invitation);
    for (std::size_t peer = 0; peer < own_; ++peer) sockets_[peer] = connect_to(peer);
    for (std::size_t peer = own_ + 1; peer < sockets_.size(); ++peer)
      while (sockets_[peer].get() < 0) accept_next();
    return std::move(sockets_);
  }

 private:
  static void check(const Invitation& invitation) {
    if (invitation.port == 0) throw Error(fmt::format("{} cannot listen on a TCP port", invitation.host));
    if (invitation.addresses == 0) throw Error(fmt::format("{} has no address for TCP", invitation.host));
  }

  OwnedDescriptor connect_to(std::size_t peer) {
    const auto& theirs = invitations_[peer];
    const auto addresses = reachable(invitations_[own_], theirs);
    for (const auto& address : addresses) {
      // An address behind a firewall must not take the time of the others.
      const auto until =
          std::min(until_, Clock::now() + connect_limit / static_cast<int>(addresses.size() + 1));
      auto socket = try_connect(address, theirs.port, until);
      if (socket.get() >= 0 && send_all(socket.get(), {theirs.token, static_cast<std::int32_t>(own_)}))
        return socket;
    }
    throw Error(fmt::format("no TCP connection to {} can be made (tried {} addresses)", theirs.host,
                            addresses.size()));
  }

  void accept_next() {
    if (!wait_for(listener_.descriptor(), POLLIN, until_))
      throw Error("a rank of another node did not connect to this node by TCP");
    auto socket = listener_.accept();
    Greeting greeting;
    const auto until = std::min(until_, Clock::now() + greeting_limit);
    if (socket.get() < 0 || !receive_all(socket.get(), greeting, until)) return;
    const auto from = static_cast<std::size_t>(greeting.from);
    if (greeting.token != invitations_[own_].token || from >= sockets_.size()) return;
    sockets_[from] = std::move(socket);
  }

  const std::size_t own_;  // rank
  const Clock::time_point until_ = Clock::now() + connect_limit;
  Listener listener_;
  std::vector<Invitation> invitations_;
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
