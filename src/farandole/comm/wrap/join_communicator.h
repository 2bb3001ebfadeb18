// A communicator whose ranks may run out of work while the collectives of the other ranks go on.
// Thread safety: none; use from one thread at a time.
//
// After join(), each collective is announced. In a small all-gather, every rank reports which collective it
// calls, or that it makes no more calls. A rank without calls takes part with data that does not change the
// result: zeros in a sum, the smallest value in a maximum, no bytes of its own. An average is that of the
// active ranks. When no rank is active, all ranks leave at the same announcement.
//
// A program that cannot call join() before its ranks have different numbers of batches asks instead: a small
// allreduce before each collective says whether any rank has stopped, and only then it is announced. Averages
// count ranks that have stopped as zeros. This communicator then is below the one that records, so that the
// timeline shows the program's collectives only.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "farandole/comm/communicator.h"
#include "farandole/comm/signature_check.h"
#include "farandole/comm/wrap/traced_communicator.h"

namespace farandole {

class JoinCommunicator : public Communicator {
 public:
  explicit JoinCommunicator(std::unique_ptr<TracedCommunicator> inner);
  // Asks before each collective.
  explicit JoinCommunicator(std::unique_ptr<Communicator> inner);

  // Of a communicator that asks. Between stop() and go_on(), an allreduce of this rank has no data of
  // its own: it takes part in the next collective of the others, and returns at the end if no rank has
  // one any more.
  void stop() { stopped_ = true; }
  void go_on() { stopped_ = false; }
  // Announces each collective from now on. Every rank calls this between the same collectives, and shadow()
  // later. If `average_over_all` is true, averages count ranks that have stopped as zeros.
  void join(bool average_over_all = false);
  bool joining() const { return joining_; }
  // The number of ranks that took part in the last collective with own data; all ranks if
  // join() was not called. If this asks, 0 after the collective in which the last rank had stopped.
  int active() const { return active_; }
  // This rank has no more work. Takes part in the collectives of the other ranks until all ranks have called
  // this, and returns the number of those collectives. It may run on another thread.
  // Throws: as a collective, and UserError on all ranks if the root of a broadcast has called this.
  std::size_t shadow();

  void allreduce(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) override;
  // Ranks that have stopped contribute zeros.
  void all_gather(std::string_view name, const void* in, void* out,
                  std::span<const std::size_t> bytes_by_rank) override;
  void broadcast(std::string_view name, void* data, std::size_t bytes, int root) override;
  // The results for ranks that have stopped are lost.
  void reduce_scatter(std::string_view name, const void* in, void* out,
                      std::span<const std::size_t> count_by_rank, DType dtype, ReduceOp op) override;
  // Ranks that have stopped send zeros of the expected size, and the data for them is lost.
  void all_to_all(std::string_view name, const void* in, std::span<const std::size_t> send_bytes, void* out,
                  std::span<const std::size_t> receive_bytes) override;
  Buffer allocate(std::size_t bytes) override { return inner_->allocate(bytes); }

 private:
  struct Announcement;
  // Whether ranks may have stopped, so that the next collective is announced.
  bool announces();
  // Reports the call of this rank; std::nullopt means that it makes no more calls. Returns true if any
  // rank calls a collective.
  bool announce(std::optional<CallDescriptor> own);
  std::vector<std::size_t> share(std::vector<std::size_t> shares);
  struct Sizes {
    std::size_t to, from;
  };
  std::vector<Sizes> exchange(const std::vector<Sizes>& own);
  template <class Call>
  void or_end(Call call);
  void end();
  bool corrects(ReduceOp op) const;
  void correct(void* data, std::size_t count, DType dtype) const;
  void take_part(const CallDescriptor& call);

  TracedCommunicator* const traced_;  // inner_, or nullptr if this asks
  const std::unique_ptr<Communicator> inner_;
  bool joining_ = false, average_over_all_, stopped_ = false;
  int active_, first_active_ = 0;
  std::uint64_t calls_ = 0;
  std::vector<CallDescriptor> announced_;   // by active rank
  std::vector<std::byte> unused_, result_;  // used by shadow()
};

}  // namespace farandole
