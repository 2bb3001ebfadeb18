#include "farandole/comm/wrap/traced_communicator.h"

namespace farandole {

TracedCommunicator::TracedCommunicator(std::unique_ptr<Communicator> inner, Timeline& timeline,
                                       std::uint16_t number, CollectiveRegistry* registry)
    : Communicator(inner->rank, inner->size),
      inner_(std::move(inner)),
      timeline_(timeline),
      number_(number),
      entry_(registry != nullptr ? registry->add(number, size) : nullptr) {
  const auto named = [&](const char* name) { return Operation{name, timeline.intern(name)}; };
  allreduce_ = named("allreduce");
  all_gather_ = named("all_gather");
  broadcast_ = named("broadcast");
  reduce_scatter_ = named("reduce_scatter");
  all_to_all_ = named("all_to_all");
}

NameId TracedCommunicator::name_id(std::string_view name) {
  auto known = names_.find(name);
  if (known == names_.end()) known = names_.emplace(name, timeline_.intern(name)).first;
  return known->second;
}

void TracedCommunicator::enter(const Operation& operation, std::string_view name, std::size_t bytes,
                               std::optional<TrackId> track, bool waits) {
  const NameId id = timeline_.enabled() ? name_id(name) : NameId{};
  call_ = {id, operation.id, {sequence_++, number_, bytes}, now_ns(), track};
  if (track)
    timeline_.begin_collective_on(*track, call_.name, call_.operation, call_.what, call_.start_ns);
  else
    timeline_.begin_collective(call_.name, call_.operation, call_.what, call_.start_ns);
  if (entry_ == nullptr) return;
  entry_->set_blocked(waits ? caller() : 0);
  entry_->enter(call_.what.sequence, operation.name, name, bytes,
                patient_ ? call_.start_ns + CollectiveEntry::patience_ns : call_.start_ns,
                caller() == entry_->owner() ? 0 : caller());
}

// The calling thread, as the registry names it.
std::int32_t TracedCommunicator::caller() const {
  const auto thread = own_thread();
  return has_servant_ && thread != entry_->owner() ? entry_->servant() : thread;
}

void TracedCommunicator::note_servant(bool has_work, bool is_awaited) {
  if (!has_servant_) has_servant_ = true;
  if (entry_ == nullptr) return;
  entry_->set_caller(has_work ? entry_->servant() : 0);
  entry_->set_awaits(is_awaited ? entry_->owner() : 0);
}

void TracedCommunicator::leave() {
  const std::int64_t end_ns = now_ns();
  if (entry_ != nullptr) entry_->leave();
  if (call_.track)
    timeline_.collective_on(*call_.track, call_.name, call_.operation, call_.what, call_.start_ns, end_ns);
  else
    timeline_.collective(call_.name, call_.operation, call_.what, call_.start_ns, end_ns);
}

// Does a part of the collective in flight. If the collective fails, it ends and is recorded too. The record
// shows that this rank took part, so that a reader of the recorders can find the rank that did not.
template <class Work>
void TracedCommunicator::attempt(Work work) {
  try {
    work();
  } catch (...) {
    leave();
    throw;
  }
}

template <class Call>
void TracedCommunicator::record(const Operation& operation, std::string_view name, std::size_t bytes,
                                Call call) {
  enter(operation, name, bytes, std::nullopt, true);
  attempt(call);
  leave();
}

void TracedCommunicator::allreduce(std::string_view name, void* data, std::size_t count, DType dtype,
                                   ReduceOp op) {
  record(allreduce_, name, count * size_of(dtype), [&] { inner_->allreduce(name, data, count, dtype, op); });
}

void TracedCommunicator::all_gather(std::string_view name, const void* in, void* out,
                                    std::span<const std::size_t> bytes_by_rank) {
  const auto total = sum(bytes_by_rank);
  record(all_gather_, name, total, [&] { inner_->all_gather(name, in, out, bytes_by_rank); });
}

void TracedCommunicator::broadcast(std::string_view name, void* data, std::size_t bytes, int root) {
  check_root(root, size);
  record(broadcast_, name, bytes, [&] { inner_->broadcast(name, data, bytes, root); });
}

void TracedCommunicator::reduce_scatter(std::string_view name, const void* in, void* out,
                                        std::span<const std::size_t> count_by_rank, DType dtype,
                                        ReduceOp op) {
  const auto total = sum(count_by_rank) * size_of(dtype);
  record(reduce_scatter_, name, total,
         [&] { inner_->reduce_scatter(name, in, out, count_by_rank, dtype, op); });
}

void TracedCommunicator::all_to_all(std::string_view name, const void* in,
                                    std::span<const std::size_t> send_bytes, void* out,
                                    std::span<const std::size_t> receive_bytes) {
  const auto total = sum(send_bytes);
  record(all_to_all_, name, total, [&] { inner_->all_to_all(name, in, send_bytes, out, receive_bytes); });
}

NonblockingAllreduce* TracedCommunicator::nonblocking_allreduce() {
  nonblocking_ = inner_->nonblocking_allreduce();
  if (nonblocking_ == nullptr) return nullptr;
  if (!track_) track_ = timeline_.add_track("reductions");
  return this;
}

void TracedCommunicator::start(std::string_view name, void* data, std::size_t count, DType dtype,
                               ReduceOp op) {
  enter(allreduce_, name, count * size_of(dtype), track_, false);
  attempt([&] { nonblocking_->start(name, data, count, dtype, op); });
}

bool TracedCommunicator::test() {
  if (!nonblocking_->can_progress()) return false;
  const std::int64_t before = now_ns();
  bool complete = false;
  attempt([&] { complete = nonblocking_->test(); });
  timeline_.span(Category::communication, call_.name, before, now_ns());
  if (complete) leave();
  return complete;
}

void TracedCommunicator::wait() {
  if (entry_ != nullptr) entry_->set_blocked(caller());
  attempt([&] { nonblocking_->wait(); });
  leave();
}

NodeSharing* TracedCommunicator::node_sharing() {
  sharing_ = inner_->node_sharing();
  if (sharing_ == nullptr) return nullptr;
  if (!track_) track_ = timeline_.add_track("reductions");
  return this;
}

// Not a collective of the timeline, because only the ranks of a node meet.
void TracedCommunicator::meet(const char* name) {
  const Span span(timeline_, Category::wait, name);
  const bool is_part = borrows_;  // Of the collective that has borrowed.
  const std::uint32_t sequence = is_part ? 0 : sequence_++;
  if (entry_ == nullptr) return sharing_->meet(name);
  entry_->set_blocked(caller());
  if (!is_part)
    entry_->enter(sequence, "barrier", name, 0, now_ns(), caller() == entry_->owner() ? 0 : caller());
  sharing_->meet(name);
  if (is_part)
    entry_->set_blocked(0);
  else
    entry_->leave();
}

std::span<const std::byte* const> TracedCommunicator::borrow(std::string_view name, const void* data,
                                                             std::size_t count, DType dtype, ReduceOp op) {
  enter(allreduce_, name, count * size_of(dtype), track_, true);
  std::span<const std::byte* const> all;
  attempt([&] { all = sharing_->borrow(name, data, count, dtype, op); });
  if (entry_ != nullptr) entry_->set_blocked(0);
  borrows_ = true;
  return all;
}

void TracedCommunicator::give_back() {
  sharing_->give_back();
  borrows_ = false;
  leave();
}

}  // namespace farandole
