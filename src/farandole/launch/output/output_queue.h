// Output queues of a supervisor or the launcher. They have limited size and never block, so that signals and
// the other stream are also served.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "farandole/launch/process/child_process.h"

namespace farandole {

enum class OutputStream : char { out = 'o', err = 'e' };

// The destination of the bytes.
class OutputChannel {
 public:
  virtual ~OutputChannel() = default;
  virtual int descriptor() const = 0;  // For poll(POLLOUT).
  // Accepts a prefix of `bytes` (not empty) and returns its length. 0: try again later. npos:
  // the reader is gone.
  virtual std::size_t write(std::string_view bytes) = 0;
};

// A file, terminal or pipe that other processes may share. Each write contains whole lines if
// they fit into PIPE_BUF. Lines for a file on a full disk are dropped.
class DescriptorChannel : public OutputChannel {
 public:
  explicit DescriptorChannel(int descriptor) : descriptor_(descriptor) {}
  int descriptor() const override { return descriptor_; }
  std::size_t write(std::string_view bytes) override;

 private:
  int descriptor_;
};

// A Unix datagram socket of the launcher on the same host. One datagram holds 'o' or 'e' and then whole lines
// up to largest_datagram. Therefore the lines of many ranks are not mixed; mpirun's own forwarding does not
// guarantee this. A supervisor sends two other datagrams itself: 's' and its process number at its begin, and
// 'x' at its end, which 'f' follows if its rank has failed by itself.
class SocketChannel : public OutputChannel {
 public:
  static constexpr std::size_t largest_datagram = 32768;
  SocketChannel(int socket, OutputStream stream) : socket_(socket), stream_(stream) {}
  int descriptor() const override { return socket_; }
  std::size_t write(std::string_view bytes) override;

 private:
  int socket_;
  OutputStream stream_;
};

// Returns a socket that is connected to the launcher's socket at `path`.
// Throws: Error if the launcher's socket does not exist.
OwnedDescriptor connect_to_launcher(const std::filesystem::path& path);
// Returns the non-blocking socket of the launcher.
// Throws: Error if it cannot be created.
OwnedDescriptor listen_as_launcher(const std::filesystem::path& path);

class OutputQueue {
 public:
  explicit OutputQueue(OutputChannel& channel) : channel_(channel) {}

  void push(std::string_view bytes) {
    if (empty()) taken_at_ = Clock::now();
    if (!broken_) pending_.append(bytes);
  }
  // Stop reading input while this is true.
  bool full() const { return pending_.size() - written_ > capacity; }
  bool empty() const { return pending_.size() == written_; }
  bool broken() const { return broken_; }  // The reader is gone; further bytes are dropped.
  // Returns whether the reader has taken none of the waiting bytes for this time.
  bool stalled(std::chrono::milliseconds time) const { return !empty() && Clock::now() >= taken_at_ + time; }
  std::string_view pending() const { return std::string_view(pending_).substr(written_); }
  int descriptor() const { return channel_.descriptor(); }
  void write_some();

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t capacity = 1 << 20;
  OutputChannel& channel_;
  std::string pending_;
  Clock::time_point taken_at_;
  std::size_t written_ = 0;
  bool broken_ = false;
};

}  // namespace farandole
