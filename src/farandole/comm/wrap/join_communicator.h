// A communicator whose ranks may run out of work: the others' collectives go on without them. Used by one
// thread at a time.
//
// Between join() and the end, each collective is announced: in a small all-gather, every rank says what it
// calls, or that it has nothing more to call. A rank of the latter kind takes part with what changes nothing:
// zeros in a sum, the least value in a maximum, no bytes of its own. An average is that of the ranks that
// are still active. When nobody is, all leave at the same announcement.
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

  // From now on collectives are announced. Every rank calls it between the same collectives, and shadow()
  // later. `average_over_all`: averages count ranks that have stopped, as zeros.
  void join(bool average_over_all = false);
  bool joining() const { return joining_; }
  // Ranks that took part in the last collective; all, when not joining.
  int active() const { return active_; }
  // This rank has nothing more to call: takes part in the others' collectives until all ranks are here.
  // Returns how many those were. Throws what a collective throws, and UserError on all ranks for a broadcast
  // from a rank that is here. May run on a thread of its own.
  std::size_t shadow();

  void allreduce(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) override;
  // Of ranks that have stopped come zeros.
  void all_gather(std::string_view name, const void* in, void* out,
                  std::span<const std::size_t> bytes_by_rank) override;
  void broadcast(std::string_view name, void* data, std::size_t bytes, int root) override;
  // What ranks get that have stopped is lost.
  void reduce_scatter(std::string_view name, const void* in, void* out,
                      std::span<const std::size_t> count_by_rank, DType dtype, ReduceOp op) override;
  // Ranks that have stopped send zeros, as many as are expected, and lose what they get.
  void all_to_all(std::string_view name, const void* in, std::span<const std::size_t> send_bytes, void* out,
                  std::span<const std::size_t> receive_bytes) override;
  Buffer allocate(std::size_t bytes) override { return inner_->allocate(bytes); }

 private:
  struct Announcement;
  // Says what this rank calls; none: nothing any more. Returns whether any rank calls something.
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

  const std::unique_ptr<TracedCommunicator> inner_;
  bool joining_ = false, average_over_all_ = false;
  int active_, first_active_ = 0;
  std::uint64_t calls_ = 0;
  std::vector<CallDescriptor> announced_;   // by active rank
  std::vector<std::byte> unused_, result_;  // of shadow()
};

}  // namespace farandole
