#include "farandole/comm/gpu/device_communicator.h"

#include <cstring>
#include <unistd.h>

#include "farandole/base/host.h"
#include "farandole/base/process/process_state.h"
#include "farandole/comm/watch/rank_status.h"

namespace farandole {

bool DevicePeer::same_host(const DevicePeer& other) const {
  return std::strcmp(host, other.host) == 0;
}
bool DevicePeer::same_device(const DevicePeer& other) const {
  return same_host(other) && std::strcmp(device, other.device) == 0;
}

std::vector<DevicePeer> meet_peers(Communicator& bootstrap, const GpuRuntime& runtime, int device,
                                   const std::vector<int>& world_ranks) {
  DevicePeer own;
  own.world_rank =
      world_ranks.empty() ? bootstrap.rank : world_ranks[static_cast<std::size_t>(bootstrap.rank)];
  own.pid = ::getpid();
  own.pid_namespace = own_pid_namespace();
  store_text(own.host, boot_id());
  store_text(own.device, runtime.describe(device).uuid);
  std::vector<DevicePeer> all(static_cast<std::size_t>(bootstrap.size));
  bootstrap.all_gather("ranks on GPUs", &own, all.data(), std::vector<std::size_t>(all.size(), sizeof own));
  return all;
}

std::size_t bytes_of(std::span<const DeviceReduction> reductions) {
  std::size_t bytes = 0;
  for (const auto& each : reductions) bytes += each.count * size_of(each.dtype);
  return bytes;
}

std::vector<PeerWatch::Peer> peers_to_watch(std::span<const DevicePeer> all, int rank) {
  std::vector<PeerWatch::Peer> peers;
  const auto& own = all[static_cast<std::size_t>(rank)];
  for (const auto& peer : all)
    if (&peer != &own && peer.same_host(own))
      peers.push_back({peer.world_rank, peer.pid, peer.pid_namespace});
  return peers;
}

}  // namespace farandole
