// Lines on their way out of a supervisor or the launcher: bounded, and written without ever waiting, so that
// signals and the other stream are served meanwhile. One thread owns a queue.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "farandole/launch/child_process.h"

namespace farandole {

enum class OutputStream : char { out = 'o', err = 'e' };

// Where bytes go.
class OutputChannel {
 public:
  virtual ~OutputChannel() = default;
  virtual int descriptor() const = 0;  // to wait for with poll(POLLOUT)
  // Takes a prefix of `bytes` (not empty) and says how long it is; 0: not now; npos: nobody will read it any
  // more.
  virtual std::size_t write(std::string_view bytes) = 0;
};

// A file, terminal or pipe that others may share. What is taken at once is whole lines where they fit into
// PIPE_BUF.
class DescriptorChannel : public OutputChannel {
 public:
  explicit DescriptorChannel(int descriptor) : descriptor_(descriptor) {}
  int descriptor() const override { return descriptor_; }
  std::size_t write(std::string_view bytes) override;

 private:
  int descriptor_;
};

// A Unix datagram socket of the launcher on the same host: one datagram holds 'o' or 'e' and then whole lines
// up to largest_datagram, so that the lines of many ranks stay whole, which mpirun's own forwarding does not
// promise.
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

// Connected to the launcher's socket at `path`. Throws Error where there is none.
OwnedDescriptor connect_to_launcher(const std::filesystem::path& path);
// The launcher's end, non-blocking. Throws Error.
OwnedDescriptor listen_as_launcher(const std::filesystem::path& path);

class OutputQueue {
 public:
  explicit OutputQueue(OutputChannel& channel) : channel_(channel) {}

  void push(std::string_view bytes) {
    if (!broken_) pending_.append(bytes);
  }
  bool full() const { return pending_.size() - written_ > capacity; }  // stop reading until it is not
  bool empty() const { return pending_.size() == written_; }
  bool broken() const { return broken_; }  // the reader is gone; what is pushed is dropped
  int descriptor() const { return channel_.descriptor(); }
  void write_some();

 private:
  static constexpr std::size_t capacity = 262144;
  OutputChannel& channel_;
  std::string pending_;
  std::size_t written_ = 0;
  bool broken_ = false;
};

}  // namespace farandole
