// Connections of ranks among strangers, who also reach the ports on which ranks listen.
#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <future>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <numeric>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "fusion/thread_world.h"

#include "farandole/base/files/file_bytes.h"
#include "farandole/comm/net/link.h"
#include "farandole/comm/net/socket_link.h"

namespace farandole {
namespace {

struct Listening {
  int descriptor = -1;
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;

  bool is_loopback() const {
    if (address.ss_family == AF_INET)
      return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
    const auto& own = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&own);
  }
};

std::vector<Listening> listening_sockets() {
  std::vector<Listening> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    Listening one{.descriptor = std::stoi(entry.path().filename().string())};
    int listens = 0;
    socklen_t size = sizeof listens;
    if (::getsockopt(one.descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0 &&
        ::getsockname(one.descriptor, reinterpret_cast<sockaddr*>(&one.address), &one.bytes) == 0)
      found.push_back(one);
  }
  return found;
}

// Calls `listens` when this rank listens, before it tells its peers where.
class Announcing : public Communicator {
 public:
  Announcing(Communicator& inner, std::function<void()> listens)
      : Communicator(inner.rank, inner.size), inner_(inner), listens_(std::move(listens)) {}
  void all_gather(std::string_view name, const void* in, void* out,
                  std::span<const std::size_t> bytes) override {
    listens_();
    inner_.all_gather(name, in, out, bytes);
  }
  void allreduce(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) override {
    inner_.allreduce(name, data, count, dtype, op);
  }
  void broadcast(std::string_view, void*, std::size_t, int) override { FAIL() << "a rank has no connection"; }
  void reduce_scatter(std::string_view, const void*, void*, std::span<const std::size_t>, DType,
                      ReduceOp) override {}
  void all_to_all(std::string_view, const void*, std::span<const std::size_t>, void*,
                  std::span<const std::size_t>) override {}
  Buffer allocate(std::size_t) override { return {}; }

 private:
  Communicator& inner_;
  const std::function<void()> listens_;
};

// Each rank sends its number to each other rank.
void exchange(const std::vector<std::unique_ptr<Link>>& links, int own) {
  std::vector<int> got(links.size(), -1);
  for (std::size_t peer = 0; peer < links.size(); ++peer) {
    if (!links[peer]) continue;
    links[peer]->send(reinterpret_cast<const std::byte*>(&own), sizeof own);
    links[peer]->receive(reinterpret_cast<std::byte*>(&got[peer]), sizeof own);
  }
  for (std::size_t peer = 0; peer < links.size(); ++peer) {
    if (static_cast<int>(peer) == own) continue;
    ASSERT_TRUE(links[peer]);
    while (links[peer]->received() < 1 || links[peer]->sent() < 1) links[peer]->progress();
    EXPECT_EQ(got[peer], static_cast<int>(peer));
  }
}

class ConnectSockets : public testing::Test {
 protected:
  ConnectSockets() { ::setenv("FARANDOLE_INTERFACE", "lo", 1); }
  ~ConnectSockets() override { ::unsetenv("FARANDOLE_INTERFACE"); }

  // `between` runs when rank 0 listens, and before the other ranks begin.
  static void connect(int ranks, const std::function<void(const std::vector<Listening>&)>& between) {
    std::promise<void> begin;
    const auto begins = begin.get_future().share();
    ThreadWorld::run(ranks, [&](Communicator& world) {
      Announcing group(world, [&] {
        if (world.rank != 0) return;
        between(listening_sockets());
        begin.set_value();
      });
      if (world.rank != 0) begins.wait();
      std::vector<int> numbers(static_cast<std::size_t>(ranks));
      std::iota(numbers.begin(), numbers.end(), 0);
      exchange(connect_sockets(group, numbers), world.rank);
    });
  }
};

// Connects to `where`, or begins to: the kernel may have no place for so many.
OwnedDescriptor stranger_at(const Listening& where) {
  OwnedDescriptor socket(::socket(where.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&where.address), where.bytes);
  return socket;
}

TEST_F(ConnectSockets, ListensOnlyAtTheInterfaceThatIsNamed) {
  std::size_t listeners = 0;
  connect(2, [&](const auto& sockets) {
    listeners = sockets.size();
    for (const auto& one : sockets) EXPECT_TRUE(one.is_loopback());
  });
  EXPECT_GE(listeners, 1u);
}

TEST_F(ConnectSockets, StrangersHoldUpNobody) {
  allow_open_files(3000, "");
  struct Case {
    const char* name;
    int strangers;
    std::function<void(OwnedDescriptor&)> say;
  };
  const std::string garbage(100, '\x1e'), half(10, 'x'), request = "GET / HTTP/1.1\r\n\r\n";
  const auto sends = [](const std::string& text) {
    return [&text](OwnedDescriptor& socket) { ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL); };
  };
  for (const Case& one :
       {Case{"close", 100, [](OwnedDescriptor& socket) { socket.reset(); }},
        Case{"garbage", 100, sends(garbage)}, Case{"request", 100, sends(request)},
        Case{"half a greeting", 100, sends(half)}, Case{"silence", 50, [](OwnedDescriptor&) {}},
        Case{"1,000 at once", 1000, [](OwnedDescriptor&) {}}}) {
    SCOPED_TRACE(one.name);
    std::vector<OwnedDescriptor> strangers;
    connect(3, [&](const auto& sockets) {
      for (int i = 0; i < one.strangers; ++i) {
        strangers.push_back(stranger_at(sockets.at(static_cast<std::size_t>(i) % sockets.size())));
        one.say(strangers.back());
      }
    });
  }
}

// Another host may have the same address, as bridges of containers do. Whoever answers there does not know
// the number of the rank.
TEST_F(ConnectSockets, AWrongAnswerLeadsToTheNextAddress) {
  for (const bool answers : {true, false}) {
    OwnedDescriptor taken;
    bool possible = false;
    std::jthread impostor;
    connect(2, [&](const auto& sockets) {
      possible = sockets.size() > 1;
      if (!possible) return;
      // The first address of rank 0 becomes the impostor's; rank 0 keeps a listener that nobody knows.
      taken = OwnedDescriptor(::fcntl(sockets[0].descriptor, F_DUPFD_CLOEXEC, 0));
      const OwnedDescriptor idle(::socket(sockets[0].address.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0));
      ASSERT_EQ(::listen(idle.get(), 1), 0);
      ASSERT_EQ(::dup2(idle.get(), sockets[0].descriptor), sockets[0].descriptor);
      impostor = std::jthread([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          pollfd waiting{taken.get(), POLLIN, 0};
          if (::poll(&waiting, 1, 10) != 1) continue;
          const OwnedDescriptor victim(::accept4(taken.get(), nullptr, nullptr, SOCK_CLOEXEC));
          std::array<char, 8> wrong{};
          if (answers) ::send(victim.get(), wrong.data(), wrong.size(), MSG_NOSIGNAL);
        }
      });
    });
    if (!possible) GTEST_SKIP() << "this machine has only one address of loopback";
  }
}

}  // namespace
}  // namespace farandole
