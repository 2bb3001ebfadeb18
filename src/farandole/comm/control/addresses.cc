#include "farandole/comm/control/addresses.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <string>
#include <tuple>

#include "farandole/base/text/phrases.h"

namespace farandole {
namespace {

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

}  // namespace

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
  if (found.size() > Address::most) found.resize(Address::most);
  return found;
}

socklen_t size_of_address(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

OwnedDescriptor new_socket(int family) {
  OwnedDescriptor socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() >= 0) replace_bbr(socket);  // Connections that a listener accepts get it from there.
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

std::vector<Address> reachable(std::span<const Address> own, std::span<const Address> theirs,
                               bool same_host) {
  std::vector<Address> first, last;
  for (const auto& address : theirs) {
    bool is_own = false, near = false;
    for (const auto& mine : own) {
      is_own = is_own || same_address(mine, address);
      near = near || same_network(mine, address);
    }
    // On the same host, loopback comes first, whose address never goes away.
    if (!same_host && (is_own || address.loopback))
      continue;  // a bridge may have the same address everywhere
    (near ? first : last).push_back(address);
  }
  first.insert(first.end(), last.begin(), last.end());
  return first;
}

}  // namespace farandole
