#include "farandole/comm/net/link.h"

#include <chrono>
#include <poll.h>
#include <sched.h>
#include <thread>
#include <vector>

#include "farandole/base/clock.h"

namespace farandole {
namespace {

constexpr int glance_ms = 50;
constexpr std::chrono::microseconds nap{50};  // for MPI and for lost connections

}  // namespace

void LinkWait::idle(std::span<Link* const> links) {
  const std::int64_t now = now_ns();
  if (give_up_ns_ == 0) give_up_ns_ = now + patience_.spin.count();
  if (now >= give_up_ns_) return sleep(links);
  if (patience_.yield) ::sched_yield();
}

void LinkWait::sleep(std::span<Link* const> links) {
  std::vector<pollfd> waits;
  for (const auto* const link : links)
    if (link->descriptor() >= 0) waits.push_back({link->descriptor(), link->events(), 0});
  if (glance_ns_ == 0) glance_ns_ = now_ns() + glance_ms * 1'000'000;
  if (waits.size() == links.size())
    ::poll(waits.data(), waits.size(), glance_ms);
  else
    std::this_thread::sleep_for(nap);
  const std::int64_t now = now_ns();
  if (now < glance_ns_) return;
  glance_ns_ = now + glance_ms * 1'000'000;
  look_around_();
}

}  // namespace farandole
