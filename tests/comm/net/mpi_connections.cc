#include <algorithm>
#include <array>
#include <filesystem>
#include <gtest/gtest.h>
#include <iterator>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <numeric>
#include <set>
#include <string>
#include <sys/socket.h>
#include <vector>

#include "comm/mpi_world.h"

#include "farandole/comm/net/socket_link.h"

namespace farandole {
namespace {

std::set<int> open_descriptors() {
  std::set<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    found.insert(std::stoi(entry.path().filename().string()));
  return found;
}

// "" if this is no TCP socket.
std::string congestion_control(int descriptor) {
  std::array<char, 16> name{};
  socklen_t bytes = name.size() - 1;
  return ::getsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes) == 0 ? name.data() : "";
}

// It can fail only on a machine whose own choice is BBR.
TEST(Connections, DoNotUseBbrOnEitherSide) {
  const auto comm = world->new_communicator(Waiting::yielding);
  std::vector<int> ranks(static_cast<std::size_t>(comm->size));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto before = open_descriptors();
  const auto links = connect_sockets(*comm, ranks);
  const auto after = open_descriptors();
  std::vector<int> made;
  std::ranges::set_difference(after, before, std::back_inserter(made));
  std::erase_if(made, [](int descriptor) { return congestion_control(descriptor).empty(); });
  EXPECT_GE(made.size(), ranks.size() - 1);
  for (const int descriptor : made) EXPECT_FALSE(congestion_control(descriptor).starts_with("bbr"));
}

}  // namespace
}  // namespace farandole
