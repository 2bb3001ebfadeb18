// Waits until a link can move data.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "farandole/comm/net/link.h"
#include "farandole/comm/shm/node_barrier.h"

namespace farandole {

class LinkWait {
 public:
  // `look_around` is called about every 50 ms. An exception from it ends the wait.
  explicit LinkWait(
      Patience patience, std::function<void()> look_around = [] {})
      : patience_(patience), look_around_(std::move(look_around)) {}

  // Data has moved, so the next wait spins again.
  void moved() { give_up_ns_ = 0; }
  // Call this if nothing moved. First returns after a moment; after repeated calls, sleeps until one of the
  // links can move data.
  void idle(std::span<Link* const> links);

 private:
  void sleep(std::span<Link* const> links);

  Patience patience_;
  std::function<void()> look_around_;
  std::int64_t give_up_ns_ = 0;
  std::int64_t glance_ns_ = 0;
};

}  // namespace farandole
