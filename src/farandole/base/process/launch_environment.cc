#include "farandole/base/process/launch_environment.h"

#include <array>
#include <cstdio>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <initializer_list>
#include <string_view>
#include <unistd.h>

#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

std::optional<int> number(const Environment& environment, const char* variable, int least) {
  const char* text = environment(variable);
  if (text == nullptr) return std::nullopt;
  const auto value = parse_number<int>(text);
  return value && *value >= least ? value : std::nullopt;
}

std::optional<LaunchValue> first_of(const Environment& environment,
                                    std::initializer_list<const char*> variables, int least) {
  for (const char* variable : variables)
    if (const auto value = number(environment, variable, least)) return LaunchValue{*value, variable};
  return std::nullopt;
}

bool is_set(const Environment& environment, const char* variable) {
  const char* text = environment(variable);
  return text != nullptr && *text != '\0';
}

}  // namespace

bool in_slurm_job(const Environment& environment) {
  return is_set(environment, "SLURM_JOB_ID") || is_set(environment, "SLURM_JOBID");
}

bool in_slurm_step(const Environment& environment) {
  return is_set(environment, "SLURM_STEP_ID") || is_set(environment, "SLURM_STEPID");
}

std::optional<LaunchValue> expected_world_size(const Environment& environment) {
  if (auto size = first_of(environment,
                           {"FARANDOLE_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"}, 1))
    return size;
  if (in_slurm_step(environment)) return first_of(environment, {"SLURM_STEP_NUM_TASKS"}, 1);
  if (in_slurm_job(environment)) return first_of(environment, {"SLURM_NTASKS", "SLURM_NPROCS"}, 1);
  return std::nullopt;
}

std::optional<LaunchValue> launched_rank(const Environment& environment) {
  if (auto rank = first_of(
          environment,
          {"FARANDOLE_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK"}, 0))
    return rank;
  if (in_slurm_step(environment)) return first_of(environment, {"SLURM_PROCID"}, 0);
  return std::nullopt;
}

bool has_process_manager(const Environment& environment) {
  for (const char* variable :
       {"OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMIX_RANK", "PMI_RANK", "PMI_FD", "MV2_COMM_WORLD_SIZE"})
    if (is_set(environment, variable)) return true;
  return false;
}

void announce_abort(const std::filesystem::path& file, const AnnouncedAbort& abort) noexcept {
  std::array<char, 512> line;
  const int length = std::snprintf(line.data(), line.size(), "%d %d %lld %s\n", abort.rank, abort.exit_code,
                                   static_cast<long long>(abort.time_ns), abort.host.c_str());
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return;
  if (::write(descriptor, line.data(), static_cast<std::size_t>(length)) != length) ::unlink(file.c_str());
  ::close(descriptor);
}

std::optional<AnnouncedAbort> read_abort(const std::filesystem::path& file) {
  AnnouncedAbort abort;
  std::ifstream text(file);
  if (!(text >> abort.rank >> abort.exit_code >> abort.time_ns >> abort.host)) return std::nullopt;
  return abort;
}

std::optional<std::string> mixed_world_message(const Environment& environment) {
  const auto programs = number(environment, "OMPI_NUM_APP_CTX", 2);
  if (!programs) return std::nullopt;
  return fmt::format(
      "this job has {} programs (mpirun A : B), but all ranks of a job must run the same one; start each program with an "
      "mpirun of its own, or all ranks with one script that chooses by OMPI_COMM_WORLD_RANK",
      *programs);
}

std::string world_of_one_message(const LaunchValue& expected, const Environment& environment) {
  const auto seen =
      fmt::format("this process sees a world of 1 rank, but {} says {}: ", expected.variable, expected.value);
  const auto instead = fmt::format("`farandole run -n {} -- PROGRAM`", expected.value);
  const std::string_view variable = expected.variable;
  if (variable == "FARANDOLE_SIZE")
    return seen + "farandole run has started it without MPI; add --starter mpirun";
  if (variable == "SLURM_NTASKS" || variable == "SLURM_NPROCS")
    return seen +
           "the program was started in the batch script itself; start it with `srun --mpi=pmix PROGRAM` or " +
           instead;
  if (variable == "SLURM_STEP_NUM_TASKS") {
    const auto cause = is_set(environment, "PMIX_RANK")
                           ? "srun offers PMIx, but the MPI library of this program does not use it; "
                           : "srun and the MPI library of this program have no process manager in common; ";
    return seen + cause + "start it with `srun --mpi=pmix PROGRAM` or " + instead;
  }
  return seen +
         "the program was started by the mpirun of another MPI library; start it with the mpirun of the MPI "
         "library that it was built with or " +
         instead;
}

}  // namespace farandole
