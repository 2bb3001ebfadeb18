// Puts every collective of another communicator into the timeline and, while it lasts, on the call board.
// Used by one thread at a time, like that one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "farandole/comm/communicator.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

class TracedCommunicator : public Communicator {
 public:
  // `number` is equal on all ranks and different for each communicator of the job; `timeline` outlives this
  // object. Without a board nobody watches its collectives.
  TracedCommunicator(std::unique_ptr<Communicator> inner, Timeline& timeline, std::uint16_t number,
                     CollectiveRegistry* board = nullptr);
  ~TracedCommunicator() override;

  std::uint16_t number() const { return number_; }

  void allreduce(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) override;
  void all_gather(std::string_view name, const void* in, void* out,
                  std::span<const std::size_t> bytes_by_rank) override;
  void broadcast(std::string_view name, void* data, std::size_t bytes, int root) override;
  void reduce_scatter(std::string_view name, const void* in, void* out,
                      std::span<const std::size_t> count_by_rank, DType dtype, ReduceOp op) override;
  void all_to_all(std::string_view name, const void* in, std::span<const std::size_t> send_bytes, void* out,
                  std::span<const std::size_t> receive_bytes) override;
  Buffer allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  // Such an allreduce lies on a track of its own, from this rank's arrival to the end; the thread's own part
  // of the work is a span of that thread.
  NonblockingAllreduce* nonblocking_allreduce() override;
  // From now on, waiting in a collective is no stall, however long: others are busy, and this rank is not.
  void set_patient(bool patient) { patient_ = patient; }

 private:
  class Nonblocking;
  struct Operation {
    const char* name;
    NameId id;
  };
  NameId name_id(std::string_view name);
  template <class Call>
  void record(const Operation& operation, std::string_view name, std::size_t bytes, Call call);

  std::unique_ptr<Communicator> inner_;
  Timeline& timeline_;
  std::uint16_t number_;
  bool patient_ = false;
  std::uint32_t sequence_ = 0;
  std::map<std::string, NameId, std::less<>> names_;  // of the collectives so far
  Operation allreduce_, all_gather_, broadcast_, reduce_scatter_, all_to_all_;
  std::shared_ptr<CallLine> line_;            // null: no board
  std::unique_ptr<Nonblocking> nonblocking_;  // made when first asked for
};

}  // namespace farandole
