#include "farandole/launch/output/output_queue.h"

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "farandole/base/error.h"

namespace farandole {
namespace {

constexpr std::size_t nobody = std::string_view::npos;

// Returns as much of `bytes` as fits, up to the end of a line if possible.
std::string_view whole_lines(std::string_view bytes, std::size_t fits) {
  if (bytes.size() <= fits) return bytes;
  const auto head = bytes.substr(0, fits);
  const auto end = head.rfind('\n');
  return end == std::string_view::npos ? head : head.substr(0, end + 1);
}

std::size_t result_of(ssize_t written) {
  if (written >= 0) return static_cast<std::size_t>(written);
  return errno == EAGAIN || errno == EINTR || errno == ENOBUFS ? 0 : nobody;
}

// The address of a socket holds at most 107 characters.
sockaddr_un address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof address.sun_path)
    throw Error("the path of the launcher's socket is too long: " + path.string() +
                "; set TMPDIR to a shorter one");
  std::strcpy(address.sun_path, path.c_str());
  return address;
}

OwnedDescriptor make_socket(int flags) {
  OwnedDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | flags, 0));
  if (socket.get() < 0) throw system_error("socket", "");
  return socket;
}

}  // namespace

std::size_t DescriptorChannel::write(std::string_view bytes) {
  // The descriptor is not set to O_NONBLOCK, because other processes share the open file. A pipe that poll
  // reports as writable accepts PIPE_BUF bytes without blocking.
  pollfd ready{descriptor_, POLLOUT, 0};
  if (::poll(&ready, 1, 0) == 0) return 0;
  const auto lines = whole_lines(bytes, PIPE_BUF);
  const auto written = ::write(descriptor_, lines.data(), lines.size());
  // A file that cannot grow now must not end a job. Its lines are lost until there is space again.
  if (written < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) return lines.size();
  return result_of(written);
}

std::size_t SocketChannel::write(std::string_view bytes) {
  const auto lines = whole_lines(bytes, largest_datagram);
  std::array<iovec, 2> parts = {iovec{&stream_, 1}, iovec{const_cast<char*>(lines.data()), lines.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const auto sent = result_of(::sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
  return sent == 0 || sent == nobody ? sent : sent - 1;
}

OwnedDescriptor connect_to_launcher(const std::filesystem::path& path) {
  auto socket = make_socket(0);
  const auto address = address_of(path);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw system_error("connect", path);
  return socket;
}

OwnedDescriptor listen_as_launcher(const std::filesystem::path& path) {
  auto socket = make_socket(SOCK_NONBLOCK);
  const auto address = address_of(path);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw system_error("bind", path);
  return socket;
}

void OutputQueue::write_some() {
  if (empty()) return;
  const auto taken = channel_.write(pending());
  if (taken > 0) taken_at_ = Clock::now();
  if (taken == nobody) broken_ = true;
  written_ = broken_ ? pending_.size() : written_ + taken;
  // The rest is moved to the front only after most of the buffer is written. Therefore the cost
  // of copying stays linear.
  if (written_ * 2 >= pending_.size()) {
    pending_.erase(0, written_);
    written_ = 0;
  }
}

}  // namespace farandole
