// The groups and collectives of farandole/capi.h.
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/capi.h"
#include "farandole/capi/group_handle.h"
#include "farandole/capi/process_job.h"
#include "farandole/comm/queue/collectives_of_root.h"
#include "farandole/comm/wrap/traced_communicator.h"

namespace farandole::capi {
namespace {

GroupHandle& of(void* group) {
  need_job();  // fdl_close() ends the groups.
  if (group == nullptr)
    throw UserError("the group is NULL: this rank is not in it; call its functions on its ranks only");
  return *static_cast<GroupHandle*>(group);
}

DType need_dtype(int number) {
  if (const auto dtype = dtype_of(number)) return *dtype;
  throw UserError("there is no element type " + std::to_string(number) + "; use one of fdl_dtype");
}

ReduceOp op_of(int number, DType dtype) {
  if (number < FDL_SUM || number > FDL_PRODUCT)
    throw UserError("there is no operation " + std::to_string(number) + "; use one of fdl_op");
  const auto op = static_cast<ReduceOp>(number);
  check_reduction(op, dtype);
  return op;
}

std::vector<std::size_t> by_rank(const GroupHandle& group, const std::size_t* sizes, std::size_t otherwise) {
  const auto ranks = static_cast<std::size_t>(group.queue.communicator().size);
  return sizes == nullptr ? std::vector<std::size_t>(ranks, otherwise)
                          : std::vector<std::size_t>(sizes, sizes + ranks);
}

// `work` gets the communicator and the name.
template <class Work>
void begin(GroupHandle& group, const char* name, std::int64_t* ticket, Work work) {
  if (name == nullptr) throw UserError("the name of the collective is NULL; pass a text");
  if (ticket == nullptr)
    group.queue.run([&](Communicator& ranks) { work(ranks, name); });
  else
    *ticket = group.queue.start(
        [work = std::move(work), text = std::string(name)](Communicator& ranks) { work(ranks, text); });
}

Tickets::Limit limit_of(double seconds) {
  return seconds < 0 ? Tickets::Limit{} : std::chrono::duration<double>(seconds);
}

GroupHandle* make_group(const int* ranks, int count) {
  auto& own = need_job();
  auto communicator = own.communicator_of(ranks, count);
  if (communicator == nullptr) return nullptr;
  auto& world = own.job.world();
  auto messages = ranks == nullptr
                      ? world.new_messages(*own.tickets)
                      : world.new_messages(*own.tickets, {ranks, static_cast<std::size_t>(count)});
  auto& timeline = own.job.timeline();
  return own.groups
      .emplace_back(std::make_unique<GroupHandle>(std::move(communicator), std::move(messages), *own.tickets,
                                                  [&timeline] { timeline.name_thread("collectives"); }))
      .get();
}

}  // namespace
}  // namespace farandole::capi

using namespace farandole;
using capi::attempt;

int fdl_group(const int* ranks, int count, void** group) {
  return attempt([&] { *group = capi::make_group(ranks, count); });
}
void fdl_group_free(void* group) {
  if (auto* const own = capi::running(); own != nullptr)
    std::erase_if(own->groups, [&](const auto& one) { return one.get() == group; });
}
int fdl_group_may_join(void* group) {
  return attempt([&] {
    auto& own = capi::of(group);
    if (own.joinable != nullptr) return;
    own.queue.run([&](Communicator& ranks) {
      own.joinable = &static_cast<TracedCommunicator&>(ranks).wrap<JoinCommunicator>();
    });
  });
}
int fdl_join(void* group, int64_t* calls) {
  return attempt([&] {
    auto& own = capi::of(group);
    if (own.joinable == nullptr)
      throw UserError("fdl_join() needs fdl_group_may_join() before the first call");
    own.queue.run([&](Communicator& ranks) {
      auto& traced = static_cast<TracedCommunicator&>(ranks);
      own.joinable->stop();
      traced.set_patient(true);
      for (*calls = 0; traced.barrier("join"), own.joinable->active() > 0;) ++*calls;
      traced.set_patient(false);
      own.joinable->go_on();
    });
  });
}
int fdl_group_rank(void* group) {
  return group == nullptr || capi::running() == nullptr ? -1 : capi::of(group).queue.communicator().rank;
}
int fdl_group_size(void* group) {
  return group == nullptr || capi::running() == nullptr ? 0 : capi::of(group).queue.communicator().size;
}

int fdl_allreduce(void* group, const char* name, void* data, size_t count, int dtype, int op,
                  int64_t* ticket) {
  return attempt([&] {
    const auto type = capi::need_dtype(dtype);
    const auto reduction = capi::op_of(op, type);
    capi::begin(capi::of(group), name, ticket, [=](Communicator& ranks, std::string_view text) {
      ranks.allreduce(text, data, count, type, reduction);
    });
  });
}

int fdl_reduce(void* group, const char* name, void* data, size_t count, int dtype, int op, int root,
               int64_t* ticket) {
  return attempt([&] {
    auto& own = capi::of(group);
    const auto type = capi::need_dtype(dtype);
    const auto reduction = capi::op_of(op, type);
    check_root(root, own.queue.communicator().size);
    capi::begin(own, name, ticket, [=, &own](Communicator& ranks, std::string_view text) {
      reduce(ranks, own.scratch, text, data, count, type, reduction, root);
    });
  });
}

int fdl_broadcast(void* group, const char* name, void* data, size_t bytes, int root, int64_t* ticket) {
  return attempt([&] {
    auto& own = capi::of(group);
    check_root(root, own.queue.communicator().size);
    capi::begin(own, name, ticket, [=](Communicator& ranks, std::string_view text) {
      ranks.broadcast(text, data, bytes, root);
    });
  });
}

int fdl_all_gather(void* group, const char* name, const void* in, void* out, size_t bytes,
                   const size_t* bytes_by_rank, int64_t* ticket) {
  return attempt([&] {
    auto& own = capi::of(group);
    capi::begin(own, name, ticket,
                [=, sizes = capi::by_rank(own, bytes_by_rank, bytes)](
                    Communicator& ranks, std::string_view text) { ranks.all_gather(text, in, out, sizes); });
  });
}

int fdl_gather(void* group, const char* name, const void* in, void* out, size_t bytes, int root,
               int64_t* ticket) {
  return attempt([&] {
    auto& own = capi::of(group);
    check_root(root, own.queue.communicator().size);
    capi::begin(own, name, ticket, [=](Communicator& ranks, std::string_view text) {
      gather(ranks, text, in, out, bytes, root);
    });
  });
}

int fdl_scatter(void* group, const char* name, const void* in, void* out, size_t bytes, int root,
                int64_t* ticket) {
  return attempt([&] {
    auto& own = capi::of(group);
    check_root(root, own.queue.communicator().size);
    capi::begin(own, name, ticket, [=](Communicator& ranks, std::string_view text) {
      scatter(ranks, text, in, out, bytes, root);
    });
  });
}

int fdl_reduce_scatter(void* group, const char* name, const void* in, void* out, size_t count,
                       const size_t* count_by_rank, int dtype, int op, int64_t* ticket) {
  return attempt([&] {
    auto& own = capi::of(group);
    const auto type = capi::need_dtype(dtype);
    const auto reduction = capi::op_of(op, type);
    capi::begin(
        own, name, ticket,
        [=, counts = capi::by_rank(own, count_by_rank, count)](Communicator& ranks, std::string_view text) {
          ranks.reduce_scatter(text, in, out, counts, type, reduction);
        });
  });
}

int fdl_all_to_all(void* group, const char* name, const void* in, const size_t* send_bytes, void* out,
                   const size_t* receive_bytes, int64_t* ticket) {
  return attempt([&] {
    auto& own = capi::of(group);
    capi::begin(
        own, name, ticket,
        [=, sent = capi::by_rank(own, send_bytes, 0), received = capi::by_rank(own, receive_bytes, 0)](
            Communicator& ranks, std::string_view text) { ranks.all_to_all(text, in, sent, out, received); });
  });
}

int fdl_barrier(void* group, const char* name, int64_t* ticket) {
  return attempt([&] {
    capi::begin(capi::of(group), name, ticket,
                [](Communicator& ranks, std::string_view text) { ranks.barrier(text); });
  });
}

int fdl_send(void* group, const void* data, size_t bytes, int peer, int tag, int64_t* ticket) {
  return attempt([&] {
    auto& messages = capi::of(group).messages;
    if (ticket == nullptr)
      messages->send(data, bytes, peer, tag);
    else
      *ticket = messages->start_send(data, bytes, peer, tag);
  });
}

int fdl_receive(void* group, void* data, size_t bytes, int source, int tag, int* peer, int64_t* ticket) {
  return attempt([&] {
    auto& messages = capi::of(group).messages;
    if (ticket != nullptr) {
      *ticket = messages->start_receive(data, bytes, source, tag, peer);
      return;
    }
    const int sender = messages->receive(data, bytes, source, tag);
    if (peer != nullptr) *peer = sender;
  });
}

int fdl_wait(int64_t ticket, double seconds, int* done) {
  return attempt([&] {
    const bool ended = capi::need_job().tickets->wait(ticket, capi::limit_of(seconds));
    if (done != nullptr) *done = ended ? 1 : 0;
  });
}
int fdl_test(int64_t ticket) {
  int ended = 0;
  const int result = attempt([&] { ended = capi::need_job().tickets->ended(ticket) ? 1 : 0; });
  return result == 0 ? ended : 0;
}
int fdl_notify(int64_t ticket) {
  return attempt([&] { capi::need_job().tickets->notify(ticket); });
}
int64_t fdl_next_done(double seconds, int* result) {
  auto* const own = capi::running();
  if (own == nullptr) return -1;
  const auto tickets = own->tickets;
  const auto done = tickets->next_done(capi::limit_of(seconds));
  if (!done) return tickets->is_closed() ? -1 : 0;
  *result = capi::result_of(done->error);
  return done->ticket;
}
