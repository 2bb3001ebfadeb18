// Records every collective of another communicator in the timeline, also if it fails. While the collective is
// in flight, it is in the registry of collectives.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "farandole/comm/communicator.h"
#include "farandole/comm/node_sharing.h"
#include "farandole/comm/watch/collective_registry.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

class TracedCommunicator : public Communicator, private NonblockingAllreduce, private NodeSharing {
 public:
  // `number` identifies the communicator in the job and is equal on all ranks. `timeline` must outlive this
  // object. If `registry` is nullptr, the watchdog does not see the collectives.
  TracedCommunicator(std::unique_ptr<Communicator> inner, Timeline& timeline, std::uint16_t number,
                     CollectiveRegistry* registry = nullptr);

  std::uint16_t number() const { return number_; }
  // Puts a communicator of this type between this one and what it records. Call this before any collective.
  template <class Wrapper>
  Wrapper& wrap() {
    auto wrapper = std::make_unique<Wrapper>(std::move(inner_));
    auto& wrapped = *wrapper;
    inner_ = std::move(wrapper);
    return wrapped;
  }

  void allreduce(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) override;
  void all_gather(std::string_view name, const void* in, void* out,
                  std::span<const std::size_t> bytes_by_rank) override;
  void broadcast(std::string_view name, void* data, std::size_t bytes, int root) override;
  void reduce_scatter(std::string_view name, const void* in, void* out,
                      std::span<const std::size_t> count_by_rank, DType dtype, ReduceOp op) override;
  void all_to_all(std::string_view name, const void* in, std::span<const std::size_t> send_bytes, void* out,
                  std::span<const std::size_t> receive_bytes) override;
  Buffer allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  // A non-blocking allreduce has its own track, on which it is shown from this rank's arrival to its end. The
  // work of test() is a span of the calling thread.
  NonblockingAllreduce* nonblocking_allreduce() override;
  // The watchdog sees a meet() as a collective. The timeline does not have it, because it may be one of some
  // ranks of the communicator only; for the calling thread, it is a wait.
  NodeSharing* node_sharing() override;
  void note_servant(bool has_work, bool is_awaited) override;
  // If true, waiting in a collective is not reported as a stall, because this rank has nothing to do
  // while the others work.
  void set_patient(bool patient) { patient_ = patient; }

 private:
  void start(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) override;
  bool test() override;
  void wait() override;
  bool can_progress() const override { return nonblocking_->can_progress(); }

  int node_rank() const override { return sharing_->node_rank(); }
  int node_size() const override { return sharing_->node_size(); }
  bool is_whole() const override { return sharing_->is_whole(); }
  std::shared_ptr<NodeBlocks> map(std::span<const std::size_t> bytes, Views views) override {
    return sharing_->map(bytes, views);
  }
  void meet(const char* name) override;
  std::span<const std::byte* const> borrow(std::string_view name, const void* data, std::size_t count,
                                           DType dtype, ReduceOp op) override;
  void give_back() override;

  struct Operation {
    const char* name;
    NameId id;
  };
  struct InFlight {
    NameId name, operation;
    Collective what{};
    std::int64_t start_ns = 0;
    std::optional<TrackId> track;  // not set: the track of the calling thread
  };
  NameId name_id(std::string_view name);
  // Every collective begins with enter() and ends with leave(), also if it fails.
  void enter(const Operation& operation, std::string_view name, std::size_t bytes,
             std::optional<TrackId> track, bool waits);
  void leave();
  std::int32_t caller() const;
  template <class Work>
  void attempt(Work work);
  template <class Call>
  void record(const Operation& operation, std::string_view name, std::size_t bytes, Call call);

  std::unique_ptr<Communicator> inner_;
  Timeline& timeline_;
  std::uint16_t number_;
  bool patient_ = false;
  bool has_servant_ = false;
  std::uint32_t sequence_ = 0;
  std::map<std::string, NameId, std::less<>> names_;  // of the collectives so far
  Operation allreduce_, all_gather_, broadcast_, reduce_scatter_, all_to_all_;
  std::shared_ptr<CollectiveEntry> entry_;  // null if there is no registry
  InFlight call_;                           // the last collective
  NonblockingAllreduce* nonblocking_ = nullptr;
  NodeSharing* sharing_ = nullptr;
  bool borrows_ = false;          // Between borrow() and give_back().
  std::optional<TrackId> track_;  // track of non-blocking allreduces
};

}  // namespace farandole
