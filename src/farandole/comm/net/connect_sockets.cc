#include "farandole/comm/net/connect_sockets.h"

#include <fmt/format.h>
#include <string>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/comm/net/socket_link.h"

namespace farandole {
namespace {

// Throws: Error on all ranks, with the text of the lowest rank that has one.
void agree_on_success(Communicator& group, std::string problem) {
  int failed = problem.empty() ? group.size : group.rank;
  group.allreduce("connections", &failed, 1, DType::int32, ReduceOp::min);
  if (failed == group.size) return;
  broadcast_text(group, problem, failed);
  throw Error(problem);
}

}  // namespace

std::vector<std::unique_ptr<Link>> connect_sockets(ControlCommunicator& group) {
  auto& control = group.control();
  const auto number = control.new_channel(group.ranks());
  std::vector<std::unique_ptr<Link>> links(static_cast<std::size_t>(group.size));
  std::string problem;
  try {
    allow_open_files(links.size(), "use fewer nodes, or --transport mpi");
    for (std::size_t r = 0; r < links.size(); ++r) {
      const int rank = group.ranks()[r];
      if (rank == control.rank()) continue;
      links[r] = std::make_unique<SocketLink>(
          control.connect(rank, number),
          fmt::format("rank {} on {}", rank, control.ranks()[static_cast<std::size_t>(rank)].host));
    }
  } catch (const Error& error) {
    problem = error.what();
  }
  agree_on_success(group, problem);
  return links;
}

}  // namespace farandole
