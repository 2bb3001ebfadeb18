// Messages between two ranks of a list that are not part of a collective: records sent to rank 0, alerts.
// Thread safety: any thread may call this at any time.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "farandole/comm/control/control_plane.h"

namespace farandole {

// Where in the list a rank is; the size of the list if it is not there.
int place_of(int rank, std::span<const int> ranks);

class MessageChannel {
 public:
  // `ranks` are ranks of the job; their places in the list are the ranks below. `control` must outlive this.
  // Collective: every rank of the list must call this in the same order.
  MessageChannel(ControlPlane& control, std::vector<int> ranks);
  // Another channel between the same ranks.
  // Collective: every rank of the list must call this in the same order.
  std::unique_ptr<MessageChannel> another() const {
    return std::make_unique<MessageChannel>(control_, ranks_);
  }

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks() const { return ranks_; }
  ControlPlane& control() const { return control_; }

  // Never waits. Messages between the same two ranks arrive in order. A message can have up to 2 GiB.
  void send(int to, std::span<const std::byte> message);
  // Waits for it. Throws: Error if the rank has ended.
  std::vector<std::byte> receive(int from);
  std::optional<Message> receive_any();  // returns a message that has arrived; does not wait
  // Waits for one for at most so long.
  std::optional<Message> wait_any(std::chrono::nanoseconds limit);

 private:
  std::optional<Message> numbered(std::optional<Message> message) const;

  ControlPlane& control_;
  const std::vector<int> ranks_;
  const int rank_;
  const ControlPlane::Channel channel_;
};

}  // namespace farandole
