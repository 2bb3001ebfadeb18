// A peer whose host does not answer, and one whose process is slow.
#include "farandole/comm/net/socket_link.h"

#include <array>
#include <cstddef>
#include <functional>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/comm/net/link.h"

namespace farandole {
namespace {

struct Connection {
  Connection() {
    const OwnedDescriptor listener(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener.get(), generic, size), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), generic, &size), 0);
    near = OwnedDescriptor(::socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(::connect(near.get(), generic, size), 0);
    far = OwnedDescriptor(::accept(listener.get(), nullptr, nullptr));
  }
  OwnedDescriptor near, far;
};

// The kernel drops all that arrives at this socket before TCP sees it, so nothing is answered.
void go_silent(int socket) {
  sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &nothing};
  ASSERT_EQ(::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
}

// Looks around until `look` returns false.
void wait_on(SocketLink& link, const std::function<bool()>& look) {
  bool goes_on = true;
  LinkWait wait({}, [&] { goes_on = look(); });
  const std::array<Link*, 1> links{&link};
  while (goes_on) {
    if (link.progress())
      wait.moved();
    else
      wait.idle(links);
  }
}

TEST(SocketLink, LosesAHostThatDoesNotAnswer) {
  Connection connection;
  go_silent(connection.far.get());
  SocketLink link(std::move(connection.near), "rank 3 on node2", 3);
  const std::vector<std::byte> message(100);
  std::array<std::byte, 4> answer{};
  link.send(message.data(), message.size());
  link.receive(answer.data(), answer.size());
  try {
    wait_on(link, [] { return true; });
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "the connection to rank 3 on node2 was lost: its host does not answer; it is off, or the network between has failed");
  }
}

// Its host answers that it has no room.
TEST(SocketLink, WaitsForAProcessThatReadsNothing) {
  Connection connection;
  SocketLink link(std::move(connection.near), "rank 3", 3);
  const std::vector<std::byte> message(64 << 20);
  link.send(message.data(), message.size());
  wait_on(link, [looks = 0]() mutable { return ++looks < 100; });  // Each after 50 ms.
  EXPECT_EQ(link.sent(), 0u);
}

}  // namespace
}  // namespace farandole
