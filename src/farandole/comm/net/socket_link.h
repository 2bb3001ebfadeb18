// Links over TCP. On Ethernet they are faster than Open MPI's TCP transport, because few bytes are in flight,
// so that the kernel's buffers and the receive buffer stay in the processor's caches.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "farandole/base/files/file_bytes.h"
#include "farandole/comm/net/link.h"

namespace farandole {

class SocketLink : public Link {
 public:
  // `socket` is connected. `peer` names the other end in messages, as in "rank 3 on node2".
  // The connection is lost once the kernel has sent the same data `most_resends` times again and got no
  // answer. The pauses begin with about 0.2 s and double, so 8 take a minute.
  SocketLink(OwnedDescriptor socket, std::string peer, int most_resends = 8);

  void send(const std::byte* data, std::size_t bytes) override;
  void receive(std::byte* data, std::size_t bytes) override;
  // A closed connection is an error only after some seconds. Until then, the launcher should end this rank:
  // it knows why the peer ended, and the peer's supervisor can save its records first.
  bool progress() override;
  void abandon() override;
  int descriptor() const override { return lost_.empty() ? socket_.get() : -1; }
  short events() const override;

 private:
  struct Message {
    std::byte* data;
    std::size_t left;
  };
  bool push();
  bool pull();
  void check_answers();
  bool lose(const char* reason);

  OwnedDescriptor socket_;
  std::string peer_;
  std::deque<Message> sends_, receives_;
  std::string lost_;  // why the connection is lost
  std::int64_t lost_ns_ = 0;
  const int most_resends_;
  std::int64_t next_check_ns_ = 0;
};

}  // namespace farandole
