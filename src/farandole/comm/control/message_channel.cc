#include "farandole/comm/control/message_channel.h"

#include <algorithm>

namespace farandole {
int place_of(int rank, std::span<const int> ranks) {
  return static_cast<int>(std::ranges::find(ranks, rank) - ranks.begin());
}

MessageChannel::MessageChannel(ControlPlane& control, std::vector<int> ranks)
    : control_(control),
      ranks_(std::move(ranks)),
      rank_(place_of(control.rank(), ranks_)),
      channel_(control.new_channel(ranks_)) {}

void MessageChannel::send(int to, std::span<const std::byte> message) {
  control_.send(ranks_[static_cast<std::size_t>(to)], channel_, message);
}

std::vector<std::byte> MessageChannel::receive(int from) {
  return std::move(control_.wait(channel_, ranks_[static_cast<std::size_t>(from)])->bytes);
}

std::optional<Message> MessageChannel::numbered(std::optional<Message> message) const {
  if (message) message->from = place_of(message->from, ranks_);
  return message;
}

std::optional<Message> MessageChannel::receive_any() {
  return numbered(control_.take(channel_));
}

std::optional<Message> MessageChannel::wait_any(std::chrono::nanoseconds limit) {
  return numbered(control_.wait(channel_, ControlPlane::any, ControlPlane::Clock::now() + limit));
}

}  // namespace farandole
