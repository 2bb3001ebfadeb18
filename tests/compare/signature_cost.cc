// What the collective signature check costs in the smallest exchange between two nodes, for
// tests/compare/nodes. Both kinds of exchange alternate on the same connection. Rank 0 prints
// {"checked_us", "unchecked_us"}: medians.
#include <cstring>
#include <fmt/format.h>
#include <vector>

#include "farandole/base/clock.h"
#include "farandole/base/quantile.h"
#include "farandole/comm/job/transport.h"
#include "farandole/comm/job/world.h"
#include "farandole/comm/signature_check.h"

namespace farandole {
namespace {

constexpr std::size_t header_bytes = 16;  // of LeaderGroup; no message of this benchmark has as many
constexpr int batches = 101, calls = 200;

// A link that other links share. Without `headers`, it does not send the headers that carry the signatures,
// and pretends to receive an equal one.
class SharedLink : public Link {
 public:
  SharedLink(Link& link, bool headers) : link_(link), headers_(headers) {}

  void send(const std::byte* data, std::size_t bytes) override {
    if (headers_ || bytes != header_bytes) return link_.send(data, bytes);
    std::memcpy(header_, data, bytes);
    ++sent_;
  }
  void receive(std::byte* data, std::size_t bytes) override {
    if (headers_ || bytes != header_bytes) return link_.receive(data, bytes);
    std::memcpy(data, header_, bytes);
    ++received_;
  }
  bool progress() override {
    const auto sent = link_.sent(), received = link_.received();
    const bool moved = link_.progress();
    sent_ += link_.sent() - sent;
    received_ += link_.received() - received;
    return moved;
  }
  void abandon() override { link_.abandon(); }
  int descriptor() const override { return link_.descriptor(); }
  short events() const override { return link_.events(); }

 private:
  Link& link_;
  const bool headers_;
  std::byte header_[header_bytes] = {};
};

LeaderGroup group_on(Link& link, int rank, bool headers) {
  std::vector<std::unique_ptr<Link>> links(2);
  links[static_cast<std::size_t>(1 - rank)] = std::make_unique<SharedLink>(link, headers);
  return LeaderGroup(rank, 2, std::move(links));
}

double batch_us(LeaderGroup& group, bool checked) {
  std::uint64_t sequence = 0;
  double value = 0;
  const auto start = now_ns();
  for (int i = 0; i < calls; ++i) {
    std::uint64_t hash = 0;
    if (checked) {
      auto call = allreduce_call("gradients of bucket 0", 1, DType::float64, ReduceOp::sum);
      call.sequence = sequence++;
      hash = hash_of(call);
    }
    group.start_small(hash, false, reinterpret_cast<std::byte*>(&value), 1, DType::float64, ReduceOp::sum);
    drive(group, &LeaderGroup::busy, LinkWait(Patience()));
  }
  return static_cast<double>(now_ns() - start) * 1e-3 / calls;
}

void measure() {
  World job;
  if (job.layout().size != 2) throw UserError("signature_cost needs two ranks");
  const int rank = job.layout().rank;
  ControlCommunicator ranks(job.control(), {0, 1});
  const auto links = make_links(LinkKind::tcp, ranks, nullptr);
  Link& link = *links[static_cast<std::size_t>(1 - rank)];
  auto checked = group_on(link, rank, true), unchecked = group_on(link, rank, false);
  std::vector<double> checked_us, unchecked_us;
  for (int batch = -10; batch < batches; ++batch) {
    const double with = batch_us(checked, true), without = batch_us(unchecked, false);
    if (batch < 0) continue;
    checked_us.push_back(with);
    unchecked_us.push_back(without);
  }
  if (rank == 0)
    fmt::print("{{\"checked_us\": {}, \"unchecked_us\": {}}}\n", quantile(checked_us, 0.5),
               quantile(unchecked_us, 0.5));
}

}  // namespace
}  // namespace farandole

int main() {
  try {
    farandole::measure();
  } catch (const std::exception& error) {
    fmt::print(stderr, "signature_cost: {}\n", error.what());
    return 1;
  }
}
