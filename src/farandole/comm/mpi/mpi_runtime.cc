#include "farandole/comm/mpi/mpi_runtime.h"

#include <cstdlib>
#include <fmt/format.h>
#include <utility>
#include <xxhash.h>

#include "farandole/base/error.h"
#include "farandole/base/process/launch_environment.h"
#include "farandole/comm/mpi/mpi_check.h"

namespace farandole {

MpiRuntime::Life::Life(int of_job) {
  int provided = MPI_THREAD_SINGLE, initialized = 0;
  MPI_Initialized(&initialized);
  is_own_ = initialized == 0;
  if (is_own_) {
    ::setenv(stack_signals_variable, "", 0);  // The launcher or another rank says how a rank was killed.
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  } else {
    if (!mpi_is_running())
      throw UserError(
          "the program has ended MPI, which can be started only once; start Farandole before MPI_Finalize");
    MPI_Query_thread(&provided);
  }
  const int size = size_of(MPI_COMM_WORLD);
  std::string refusal;
  if (provided < MPI_THREAD_MULTIPLE && !is_own_)
    refusal =
        "the program has started MPI without MPI_THREAD_MULTIPLE; start it with MPI_Init_thread and "
        "MPI_THREAD_MULTIPLE (mpi4py.rc.thread_level = \"multiple\"), or start Farandole first";
  else if (provided < MPI_THREAD_MULTIPLE)
    refusal =
        "this MPI library lacks MPI_THREAD_MULTIPLE, which overlapping communication needs; use an Open MPI "
        "that was built with it";
  else if (size != of_job)
    refusal = fmt::format(
        "MPI has {} ranks, but the job has {}; start the program with the mpirun of the MPI library that "
        "Farandole was built with, or use --transport hierarchical, which needs no MPI",
        size, of_job);
  if (!refusal.empty()) {
    if (is_own_) MPI_Finalize();
    throw UserError(refusal);
  }
  // MPI_Finalize first deletes the attributes of MPI_COMM_SELF, when MPI still works.
  const auto call_back = [](MPI_Comm, int, void* own, void*) {
    auto& life = *static_cast<Life*>(own);
    life.attribute_ = MPI_KEYVAL_INVALID;
    life.is_own_ = false;
    const auto function = std::exchange(life.before_finalize, nullptr);
    if (function) function();  // It may end the job.
    return MPI_SUCCESS;
  };
  check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, call_back, &attribute_, nullptr),
            "MPI_Comm_create_keyval");
  check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, attribute_, this), "MPI_Comm_set_attr");
}

MpiRuntime::Life::~Life() {
  const bool ends_mpi = is_own_;
  before_finalize = nullptr;
  if (attribute_ != MPI_KEYVAL_INVALID) MPI_Comm_delete_attr(MPI_COMM_SELF, attribute_);
  if (ends_mpi) MPI_Finalize();
}

MpiRuntime::MpiRuntime(int size) : life_(size) {}

MpiRuntime::~MpiRuntime() = default;

MPI_Comm MpiRuntime::group_of(std::span<const int> ranks) const {
  // Several threads may create groups with common ranks at the same time. The tag separates them.
  constexpr std::uint64_t tags = 32768;  // number of tags that every MPI has
  const auto tag = static_cast<int>(XXH3_64bits(ranks.data(), ranks.size_bytes()) % tags);
  MPI_Group job = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &job), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(job, static_cast<int>(ranks.size()), ranks.data(), &group), "MPI_Group_incl");
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &comm), "MPI_Comm_create_group");
  MPI_Group_free(&group);
  MPI_Group_free(&job);
  return comm;
}

}  // namespace farandole
