#include "farandole/comm/net/socket_link.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

constexpr std::int64_t grace_ns = 5'000'000'000;
constexpr std::int64_t between_checks_ns = 1'000'000'000;
constexpr std::size_t most_parts = 8;  // messages that one system call moves

// Marks `moved` bytes as done. Returns the number of messages that are now complete.
template <class Messages>
std::uint64_t take_off(Messages& messages, std::size_t moved) {
  std::uint64_t complete = 0;
  while (!messages.empty()) {
    auto& first = messages.front();
    const std::size_t part = std::min(moved, first.left);
    first.data += part;
    first.left -= part;
    moved -= part;
    if (first.left > 0) break;
    messages.pop_front();
    ++complete;
  }
  return complete;
}

// The first messages of a queue as the argument of a system call.
struct MessageParts {
  template <class Messages>
  explicit MessageParts(const Messages& messages) {
    header.msg_iov = parts.data();
    for (; header.msg_iovlen < std::min(messages.size(), most_parts); ++header.msg_iovlen) {
      const auto& message = messages[header.msg_iovlen];
      parts[header.msg_iovlen] = {message.data, message.left};
      bytes += message.left;
    }
  }
  MessageParts(const MessageParts&) = delete;

  std::array<iovec, most_parts> parts;
  msghdr header{};
  std::size_t bytes = 0;
};

bool would_wait() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

SocketLink::SocketLink(OwnedDescriptor socket, std::string peer, int most_resends)
    : socket_(std::move(socket)), peer_(std::move(peer)), most_resends_(most_resends) {
  const int on = 1;
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // A host without power sends nothing. The kernel then ends an idle connection after a minute. One on which
  // data is under way would last 15 minutes (tcp_retries2), so check_answers() ends it.
  const int idle_s = 30, interval_s = 10, probes = 3;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

void SocketLink::send(const std::byte* data, std::size_t bytes) {
  sends_.push_back({const_cast<std::byte*>(data), bytes});
}

void SocketLink::receive(std::byte* data, std::size_t bytes) {
  receives_.push_back({data, bytes});
}

bool SocketLink::progress() {
  if (!lost_.empty()) {
    if (now_ns() - lost_ns_ < grace_ns) return false;
    throw Error(fmt::format("the connection to {} was lost: {}", peer_, lost_), ExitCode::peer_lost);
  }
  const bool pushed = push();
  if (pull() || pushed) return true;
  check_answers();
  return false;
}

// For a stopped process, its host answers. TCP_USER_TIMEOUT would end its connection as well. A host without
// memory for the data answers each time as well, so an answer is missing if the last one is older than the
// pause between two times.
void SocketLink::check_answers() {
  const auto now = now_ns();
  if (now < next_check_ns_) return;
  next_check_ns_ = now + between_checks_ns;
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return;
  const bool unanswered = info.tcpi_last_ack_recv > info.tcpi_rto / 1000 * 5 / 4;  // ms and us
  if (info.tcpi_probes >= most_resends_ || (info.tcpi_retransmits >= most_resends_ && unanswered))
    lose("its host does not answer; it is off, or the network between has failed");
}

bool SocketLink::lose(const char* reason) {
  if (lost_.empty()) lost_ns_ = now_ns();
  lost_ = reason;
  return false;
}

bool SocketLink::push() {
  if (sends_.empty()) return false;
  const MessageParts first(sends_);
  const ssize_t moved = ::sendmsg(socket_.get(), &first.header, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (moved < 0) return would_wait() ? false : lose(std::strerror(errno));
  sent_ += take_off(sends_, static_cast<std::size_t>(moved));
  return true;
}

bool SocketLink::pull() {
  if (receives_.empty()) return false;
  MessageParts first(receives_);
  // A read of no bytes would look like the end of the stream.
  const ssize_t moved = first.bytes == 0 ? 0 : ::recvmsg(socket_.get(), &first.header, MSG_DONTWAIT);
  if (moved < 0) return would_wait() ? false : lose(std::strerror(errno));
  if (moved == 0 && first.bytes > 0) return lose("its process has ended or closed it");
  received_ += take_off(receives_, static_cast<std::size_t>(moved));
  return true;
}

void SocketLink::abandon() {
  sends_.clear();
  receives_.clear();
}

short SocketLink::events() const {
  return static_cast<short>((sends_.empty() ? 0 : POLLOUT) | (receives_.empty() ? 0 : POLLIN));
}

}  // namespace farandole
