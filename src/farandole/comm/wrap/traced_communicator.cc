#include "farandole/comm/wrap/traced_communicator.h"

#include <numeric>

#include "farandole/comm/nonblocking_allreduce.h"

namespace farandole {

namespace {

struct Leave {
  void operator()(CallLine* line) const { line->leave(); }
};

}  // namespace

TracedCommunicator::TracedCommunicator(std::unique_ptr<Communicator> inner, Timeline& timeline,
                                       std::uint16_t number, CollectiveRegistry* board)
    : Communicator(inner->rank, inner->size),
      inner_(std::move(inner)),
      timeline_(timeline),
      number_(number),
      line_(board != nullptr ? board->add(number) : nullptr) {
  const auto named = [&](const char* name) { return Operation{name, timeline.intern(name)}; };
  allreduce_ = named("allreduce");
  all_gather_ = named("all_gather");
  broadcast_ = named("broadcast");
  reduce_scatter_ = named("reduce_scatter");
  all_to_all_ = named("all_to_all");
}

TracedCommunicator::~TracedCommunicator() = default;

NameId TracedCommunicator::name_id(std::string_view name) {
  auto known = names_.find(name);
  if (known == names_.end()) known = names_.emplace(name, timeline_.intern(name)).first;
  return known->second;
}

template <class Call>
void TracedCommunicator::record(const Operation& operation, std::string_view name, std::size_t bytes,
                                Call call) {
  const Collective what{sequence_++, number_, bytes};
  const bool recording = timeline_.recording();
  if (!recording && line_ == nullptr) return call();
  const NameId id = recording ? name_id(name) : NameId{};
  const std::int64_t start = now_ns();
  timeline_.begin_collective(id, operation.id, what, start);
  constexpr std::int64_t for_years = std::int64_t{1} << 58;
  if (line_ != nullptr)
    line_->enter(what.sequence, operation.name, name, bytes, patient_ ? start + for_years : start);
  const std::unique_ptr<CallLine, Leave> until_done(line_.get());
  try {
    call();
  } catch (...) {  // this rank was there: who looks into the recorders finds who was not
    timeline_.collective(id, operation.id, what, start, now_ns());
    throw;
  }
  timeline_.collective(id, operation.id, what, start, now_ns());
}

void TracedCommunicator::allreduce(std::string_view name, void* data, std::size_t count, DType dtype,
                                   ReduceOp op) {
  record(allreduce_, name, count * size_of(dtype), [&] { inner_->allreduce(name, data, count, dtype, op); });
}

void TracedCommunicator::all_gather(std::string_view name, const void* in, void* out,
                                    std::span<const std::size_t> bytes_by_rank) {
  const auto total = std::accumulate(bytes_by_rank.begin(), bytes_by_rank.end(), std::size_t{0});
  record(all_gather_, name, total, [&] { inner_->all_gather(name, in, out, bytes_by_rank); });
}

void TracedCommunicator::broadcast(std::string_view name, void* data, std::size_t bytes, int root) {
  record(broadcast_, name, bytes, [&] { inner_->broadcast(name, data, bytes, root); });
}

void TracedCommunicator::reduce_scatter(std::string_view name, const void* in, void* out,
                                        std::span<const std::size_t> count_by_rank, DType dtype,
                                        ReduceOp op) {
  const auto total =
      std::accumulate(count_by_rank.begin(), count_by_rank.end(), std::size_t{0}) * size_of(dtype);
  record(reduce_scatter_, name, total,
         [&] { inner_->reduce_scatter(name, in, out, count_by_rank, dtype, op); });
}

void TracedCommunicator::all_to_all(std::string_view name, const void* in,
                                    std::span<const std::size_t> send_bytes, void* out,
                                    std::span<const std::size_t> receive_bytes) {
  const auto total = std::accumulate(send_bytes.begin(), send_bytes.end(), std::size_t{0});
  record(all_to_all_, name, total, [&] { inner_->all_to_all(name, in, send_bytes, out, receive_bytes); });
}

class TracedCommunicator::Nonblocking : public NonblockingAllreduce {
 public:
  Nonblocking(TracedCommunicator& traced, NonblockingAllreduce& inner)
      : traced_(traced), inner_(inner), track_(traced.timeline_.add_track("reductions")) {}

  void start(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) override {
    what_ = {traced_.sequence_++, traced_.number_, count * size_of(dtype)};
    name_ = traced_.name_id(name);
    start_ns_ = now_ns();
    if (traced_.line_ != nullptr)
      traced_.line_->enter(what_.sequence, traced_.allreduce_.name, name, what_.bytes, start_ns_);
    traced_.timeline_.begin_collective_on(track_, name_, traced_.allreduce_.id, what_, start_ns_);
    inner_.start(name, data, count, dtype, op);
  }

  Progress test() override {
    const std::int64_t before = now_ns();
    auto made = Progress::none;
    ended_by_error([&] { made = inner_.test(); });
    if (made != Progress::none) traced_.timeline_.span(Category::communication, name_, before, now_ns());
    if (made == Progress::done) end();
    return made;
  }

  void wait() override {
    ended_by_error([&] { inner_.wait(); });
    end();
  }

 private:
  template <class Work>
  void ended_by_error(Work work) {
    try {
      work();
    } catch (...) {
      if (traced_.line_ != nullptr) traced_.line_->leave();
      throw;
    }
  }

  void end() {
    if (traced_.line_ != nullptr) traced_.line_->leave();
    traced_.timeline_.collective_on(track_, name_, traced_.allreduce_.id, what_, start_ns_, now_ns());
  }

  TracedCommunicator& traced_;
  NonblockingAllreduce& inner_;
  const TrackId track_;
  Collective what_{};
  NameId name_;
  std::int64_t start_ns_ = 0;
};

NonblockingAllreduce* TracedCommunicator::nonblocking_allreduce() {
  auto* const inner = inner_->nonblocking_allreduce();
  if (nonblocking_ == nullptr && inner != nullptr)
    nonblocking_ = std::make_unique<Nonblocking>(*this, *inner);
  return nonblocking_.get();
}

}  // namespace farandole
