// Addresses at which a rank listens for TCP, and the order in which others try them.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <netinet/in.h>
#include <span>
#include <string_view>
#include <sys/socket.h>
#include <vector>

#include "farandole/base/files/file_bytes.h"

namespace farandole {

// An address at which a rank listens, and the network in which it lies. Sent to the peers unchanged.
struct Address {
  static constexpr std::size_t most = 8;  // that a rank tells

  sockaddr_storage address{};  // with the port
  sockaddr_storage mask{};
  long speed = 0;  // Mbit/s; 0 if it is unknown or the interface is not a device, as a bridge of containers
  bool loopback = false;
};

// Of the interfaces that FARANDOLE_INTERFACE names, by default of all of them; the fastest first.
std::vector<Address> own_addresses();
// Listens at the addresses of the interfaces that the user names, or else at all addresses. Puts the ports
// into `addresses` and removes those at which this rank cannot listen.
std::vector<OwnedDescriptor> listen_at(std::vector<Address>& addresses);
// The peer's addresses, the most promising ones first.
std::vector<Address> reachable(std::span<const Address> own, std::span<const Address> theirs, bool same_host);

// A socket that does not block.
OwnedDescriptor new_socket(int family);
socklen_t size_of_address(const sockaddr_storage& address);

}  // namespace farandole
