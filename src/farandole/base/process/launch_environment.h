// What the launcher of this process (farandole run, Slurm, Open MPI, another MPI) says about rank
// and world size.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace farandole {

// The environment variable in which `farandole run` tells how often it has started the job again.
inline constexpr const char* restarts_variable = "FARANDOLE_RESTARTS";
// Set for a program under a supervisor of `farandole run`, which records its end and ends the job.
// The value is a file for announce_abort().
inline constexpr const char* supervised_variable = "FARANDOLE_SUPERVISED";
// A file in a folder that all ranks of this start see, in which rank 0 may publish where the others reach it.
// `farandole run` sets the variable; the file does not exist before.
inline constexpr const char* meeting_variable = "FARANDOLE_MEETING";
// The signals at which Open MPI writes a stack of 10 to 50 lines; empty: none.
inline constexpr const char* stack_signals_variable = "OMPI_MCA_opal_signal";

// Looks up an environment variable; nullptr or "" means that the variable is not set. &std::getenv fits.
using Environment = std::function<const char*(const char*)>;

// A number and the environment variable that holds it.
struct LaunchValue {
  int value = 0;
  std::string variable;
};

// The number of ranks that the launcher meant to start, if an environment variable holds it. The variables of
// `farandole run` have priority over those of mpirun, these over those of a Slurm step, and those of a step
// over those of the allocation. A variable that does not hold a positive number counts as not set.
std::optional<LaunchValue> expected_world_size(const Environment& environment);

// The rank of this process. SLURM_PROCID counts only in a Slurm step, because Slurm also sets it to
// 0 in batch scripts.
std::optional<LaunchValue> launched_rank(const Environment& environment);

// in_slurm_step() is true for a task of a step (srun) and false for the batch script itself.
bool in_slurm_job(const Environment& environment);
bool in_slurm_step(const Environment& environment);

// Says whether a variable tells the MPI library how to find the other ranks. Without one, Open MPI ends a
// task of a Slurm step in MPI_Init.
bool has_process_manager(const Environment& environment);

// How a rank ends that calls MPI_Abort. mpirun and srun then end all ranks by signals, also this one.
struct AnnouncedAbort {
  int rank = 0, exit_code = 0;
  std::int64_t time_ns = 0;  // CLOCK_REALTIME
  std::string host;
};

// A supervised program calls this before MPI_Abort. The launcher then takes the rank's end from it, and does
// not show MPI_Abort's banner. Of several ranks, the first one counts.
void announce_abort(const std::filesystem::path& file, const AnnouncedAbort& abort) noexcept;
std::optional<AnnouncedAbort> read_abort(const std::filesystem::path& file);

// One line for the user if mpirun has started several programs as one job; nullopt otherwise. MPI_Init waits
// for all of them, for ever if one of them is no MPI program.
std::optional<std::string> mixed_world_message(const Environment& environment);

// One line for the user if MPI made a world of one rank although the launcher meant to start `expected`
// ranks. It names the difference, the likely cause and the correct start command.
std::string world_of_one_message(const LaunchValue& expected, const Environment& environment);

}  // namespace farandole
