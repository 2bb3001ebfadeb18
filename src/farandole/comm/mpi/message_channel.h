// Messages between two ranks that are not part of a collective: recorders sent to rank 0, and clock samples.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <mpi.h>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

namespace farandole {

struct Message {
  int from = 0;
  std::vector<std::byte> bytes;
};

// The bytes of a message that consists of a plain value.
template <typename T>
std::span<const std::byte> byte_view(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(std::span(&value, 1));
}

// std::nullopt if the message has another size.
template <typename T>
std::optional<T> value_of(const std::vector<std::byte>& message) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  if (message.size() != sizeof value) return std::nullopt;
  std::memcpy(&value, message.data(), sizeof value);
  return value;
}

class MessageChannel {
 public:
  explicit MessageChannel(MPI_Comm parent);  // collective
  // Creates another channel between the same ranks for another thread.
  // Collective: every rank of the group must call this in the same order.
  std::unique_ptr<MessageChannel> another() const { return std::make_unique<MessageChannel>(comm_); }
  ~MessageChannel();
  MessageChannel(const MessageChannel&) = delete;
  MessageChannel& operator=(const MessageChannel&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Messages between the same two ranks arrive in order. send() may return before the message was received. A
  // message can have up to 1 GiB.
  void send(int to, std::span<const std::byte> message);
  // Spins for some microseconds, then sleeps between checks.
  std::vector<std::byte> receive(int from);
  std::optional<Message> receive_any();  // returns a message that has arrived; does not wait

 private:
  std::optional<Message> look_for(int from);

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace farandole
