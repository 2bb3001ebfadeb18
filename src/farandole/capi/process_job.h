// What the functions of farandole/capi.h share: the job of this process, and how errors become results.
// Thread safety: any thread may call this at any time. Functions say where this is not so.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "farandole/base/dtype.h"
#include "farandole/comm/queue/point_to_point.h"
#include "farandole/comm/queue/tickets.h"
#include "farandole/comm/wrap/traced_communicator.h"
#include "farandole/job/job.h"
#include "farandole/job/run/metrics_log.h"
#include "farandole/job/run/run_directory.h"

namespace farandole::capi {

class GroupHandle;
class ReducerHandle;

// Between fdl_init() and fdl_close().
struct ProcessJob {
  ProcessJob();
  explicit ProcessJob(const GuestRank& rank);
  ~ProcessJob();
  // Another communicator of these ranks of the job; NULL: of all. nullptr on other ranks.
  // Collective: every rank in the list must call this in the same order.
  std::unique_ptr<TracedCommunicator> communicator_of(const int* ranks, int count);

  Job job;
  // The tickets outlive the job, because threads may wait in fdl_next_done() until its end.
  const std::shared_ptr<Tickets> tickets;
  std::vector<std::unique_ptr<GroupHandle>> groups;
  std::vector<std::unique_ptr<ReducerHandle>> reducers;
  // On rank 0, if the program gives them something.
  std::optional<RunDirectory> directory;
  std::optional<MetricsLog> metrics;
  int exit_code = 0;
};

// nullptr outside of them.
ProcessJob* running();
// Throws: UserError outside of them.
ProcessJob& need_job();

// Of fdl_dtype; std::nullopt for other numbers.
std::optional<DType> dtype_of(int number);

// Keeps what fdl_error() says on this thread, and returns the exit code. Null is success.
int result_of(const std::exception_ptr& error);
template <class Work>
int attempt(Work work) {
  try {
    work();
    return 0;
  } catch (...) {
    return result_of(std::current_exception());
  }
}

}  // namespace farandole::capi
