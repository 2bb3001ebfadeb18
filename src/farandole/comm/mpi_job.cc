#include "farandole/comm/mpi_job.h"

#include <cstdlib>
#include <unistd.h>

#include "farandole/base/error.h"
#include "farandole/comm/mpi_check.h"
#include "farandole/launch/launch_environment.h"

namespace farandole {
namespace {

std::vector<std::string> gather_hosts(int size) {
  char own[256] = "";
  ::gethostname(own, sizeof own - 1);
  std::vector<char> all(static_cast<std::size_t>(size) * sizeof own);
  check_mpi(MPI_Allgather(own, sizeof own, MPI_CHAR, all.data(), sizeof own, MPI_CHAR, MPI_COMM_WORLD),
            "MPI_Allgather");
  std::vector<std::string> hosts;
  for (std::size_t r = 0; r < static_cast<std::size_t>(size); ++r)
    hosts.emplace_back(all.data() + r * sizeof own);
  return hosts;
}

RankLayout find_layout() {
  RankLayout layout;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &layout.rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &layout.size), "MPI_Comm_size");
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, layout.rank, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  MPI_Comm_rank(node, &layout.local_rank);
  MPI_Comm_size(node, &layout.local_size);
  MPI_Comm_free(&node);
  layout.hosts = gather_hosts(layout.size);
  layout.node = layout.hosts[static_cast<std::size_t>(layout.rank)];
  return layout;
}

}  // namespace

MpiJob::Runtime::Runtime() {
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::string refusal;
  if (provided < MPI_THREAD_MULTIPLE)
    refusal =
        "this MPI gives no MPI_THREAD_MULTIPLE, which overlapping communication needs; use an Open MPI built "
        "with it";
  else if (const auto expected = expected_world_size(&std::getenv);
           size == 1 && expected && expected->value > 1)
    refusal = world_of_one_message(*expected, &std::getenv);
  if (refusal.empty()) return;
  MPI_Finalize();
  throw UserError(refusal);
}

MpiJob::Runtime::~Runtime() {
  MPI_Finalize();
}

MpiJob::MpiJob() : layout_(find_layout()) {}

MpiJob::~MpiJob() = default;

std::unique_ptr<Communicator> MpiJob::new_communicator(Waiting waiting) const {
  return std::make_unique<MpiCommunicator>(MPI_COMM_WORLD, types_, waiting);
}

std::unique_ptr<MessageChannel> MpiJob::new_channel() const {
  return std::make_unique<MessageChannel>(MPI_COMM_WORLD);
}

void MpiJob::abort(int exit_code) {
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

}  // namespace farandole
