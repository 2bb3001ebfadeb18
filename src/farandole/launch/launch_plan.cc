#include "farandole/launch/launch_plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "farandole/base/error.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/launch/slurm/allocation.h"

namespace farandole {
namespace {

constexpr int most_ranks = 1'000'000;

class Planner {
 public:
  Planner(const LaunchRequest& request, const LaunchFacts& facts, const Environment& environment)
      : request_(request),
        facts_(facts),
        environment_(environment),
        slurm_(in_slurm_job(environment) && facts.srun_found && !request.local) {}

  LaunchPlan plan() {
    refuse_nesting();
    refuse_job_without_srun();
    plan_.starter = request_.starter.value_or(usual_starter());
    plan_.ranks = slurm_ ? slurm_ranks() : machine_ranks();
    if (plan_.ranks < 1 || plan_.ranks > most_ranks)
      throw UserError(fmt::format("-n {} is not a number of ranks; give 1 or more, or -n all for all cores",
                                  plan_.ranks));
    check_nodes();
    plan_common_environment();
    if (plan_.starter == Starter::own) plan_own();
    if (plan_.starter == Starter::mpirun) plan_mpirun();
    if (plan_.starter == Starter::srun) plan_srun();
    refuse_or_allow_oversubscription();
    return std::move(plan_);
  }

 private:
  std::string text(const char* variable) const {
    const char* value = environment_(variable);
    return value == nullptr ? "" : value;
  }
  std::optional<int> number(const char* variable) const {
    const auto value = parse_number<int>(text(variable));
    return value && *value > 0 ? value : std::nullopt;
  }
  void set_unless_given(const char* variable, const std::string& value) {
    if (text(variable).empty()) plan_.environment.emplace_back(variable, value);
  }

  void refuse_nesting() const {
    const auto around = expected_world_size(environment_);
    if (!around || around->value < 2 || !launched_rank(environment_)) return;
    throw UserError(fmt::format(
        "this process is already one of {} ranks ({}); call farandole run once, outside srun or mpirun, or "
        "start the program itself with srun --mpi=pmix",
        around->value, around->variable));
  }

  // mpirun would call srun as well, and would fail in many words.
  void refuse_job_without_srun() const {
    const bool works = facts_.srun_found && facts_.srun_refusal.empty();
    if (!in_slurm_job(environment_) || works || request_.local || request_.starter == Starter::mpirun ||
        request_.starter == Starter::own)
      return;
    throw UserError(fmt::format(
        "SLURM_JOB_ID names Slurm job {}, but srun {}, as in a container; start all ranks on this machine with --local, "
        "or make Slurm's commands and configuration visible here",
        text("SLURM_JOB_ID").empty() ? text("SLURM_JOBID") : text("SLURM_JOB_ID"),
        facts_.srun_found ? "does not work here (" + facts_.srun_refusal + ")" : "is not in PATH"));
  }

  void check_nodes() const {
    const int there = slurm_ ? slurm_nodes() : 1;
    if (request_.nodes.value_or(there) == there) return;
    throw UserError(fmt::format(
        "-N {0}: {1}; leave out -N, which means nodes, and give the number of ranks with -n. A job of {0} nodes is "
        "made by farandole submit -N{0} or salloc -N{0}",
        *request_.nodes,
        slurm_ ? fmt::format("this Slurm job has {} node{}, and all of them are used", there,
                             there == 1 ? "" : "s")
               : "without a Slurm job, all ranks are on this machine"));
  }

  Starter usual_starter() const {
    if (!slurm_) return facts_.mpirun_found ? Starter::mpirun : Starter::own;
    return facts_.srun_has_pmix || !facts_.mpirun_found ? Starter::srun : Starter::mpirun;
  }

  int machine_ranks() const {
    const int ranks = request_.ranks.value_or(1);
    return ranks == all_cores ? facts_.cores : ranks;
  }

  int slurm_nodes() const {
    return number("SLURM_JOB_NUM_NODES").value_or(number("SLURM_NNODES").value_or(1));
  }
  // The cores of all nodes; 0: unknown.
  int all_cpus() const {
    if (!slurm_) return facts_.cores;
    const auto cpus = slurm_cpus();
    return std::accumulate(cpus.begin(), cpus.end(), 0);
  }
  int threads() const {
    if (!slurm_) return std::max(1, facts_.cores / plan_.ranks);
    const auto cpus = slurm_cpus();
    const int per_node = (plan_.ranks + slurm_nodes() - 1) / slurm_nodes();
    const int fewest = cpus.empty() ? 1 : *std::min_element(cpus.begin(), cpus.end());
    return number("SLURM_CPUS_PER_TASK").value_or(std::max(1, fewest / per_node));
  }
  // Ranks that share a core slow each other down, so the user must want it.
  bool may_oversubscribe() const {
    const auto told = text("OMPI_MCA_rmaps_base_oversubscribe");
    return request_.oversubscribe || told == "1" || told == "true" || !text("SLURM_OVERCOMMIT").empty();
  }
  void refuse_or_allow_oversubscription() {
    const int cpus = all_cpus(), per_task = slurm_ ? number("SLURM_CPUS_PER_TASK").value_or(1) : 1;
    if (cpus == 0 || std::int64_t{plan_.ranks} * per_task <= cpus) return;
    if (!may_oversubscribe())
      throw UserError(fmt::format(
          "{} rank{}{} need more than the {} core{} of this {}; use -n {}, or allow ranks to share cores with --oversubscribe",
          plan_.ranks, plan_.ranks == 1 ? "" : "s",
          per_task == 1 ? "" : fmt::format(" with {} cores each (SLURM_CPUS_PER_TASK)", per_task), cpus,
          cpus == 1 ? "" : "s", slurm_ ? "job" : "machine", std::max(1, cpus / per_task)));
    set_unless_given("OMPI_MCA_mpi_yield_when_idle", "1");
    if (plan_.starter == Starter::srun) plan_.command.insert(plan_.command.begin() + 1, "--overcommit");
  }

  std::vector<int> slurm_cpus() const { return cpus_by_node(text("SLURM_JOB_CPUS_PER_NODE")); }

  int slurm_ranks() const {
    if (request_.ranks && *request_.ranks != all_cores) return *request_.ranks;
    if (const auto tasks = number("SLURM_NTASKS")) return *tasks;
    const auto cpus = slurm_cpus();
    if (request_.ranks && !cpus.empty()) return std::accumulate(cpus.begin(), cpus.end(), 0);
    return slurm_nodes() * number("SLURM_NTASKS_PER_NODE").value_or(1);
  }

  void plan_common_environment() {
    const auto path = text("PATH");
    if (!facts_.programs.empty())
      plan_.environment.emplace_back(
          "PATH", path.empty() ? facts_.programs.string() : path + ":" + facts_.programs.string());
    if (!request_.run_dir.empty())
      plan_.environment.emplace_back("FARANDOLE_RUN_DIR", std::filesystem::absolute(request_.run_dir));
    if (text("OMP_NUM_THREADS").empty()) {
      plan_.threads = threads();
      plan_.environment.emplace_back("OMP_NUM_THREADS", std::to_string(plan_.threads));
    }
    if (facts_.free_port > 0) set_unless_given("MASTER_PORT", std::to_string(facts_.free_port));
    if (facts_.terminal_columns && !request_.prefix)
      plan_.environment.emplace_back("FARANDOLE_TERMINAL_COLUMNS", std::to_string(*facts_.terminal_columns));
  }

  void plan_own() {
    if (slurm_ && slurm_nodes() > 1)
      throw UserError(fmt::format(
          "--starter own starts all ranks on this machine, and this Slurm job has {} nodes; leave it out, or add --local",
          slurm_nodes()));
  }

  void plan_mpirun() {
    if (!facts_.mpirun_found) throw UserError("mpirun is not in PATH; install Open MPI or load its module");
    if (facts_.root &&
        (text("OMPI_ALLOW_RUN_AS_ROOT") != "1" || text("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") != "1"))
      throw UserError(
          "mpirun refuses to run as root; run as another user, or set OMPI_ALLOW_RUN_AS_ROOT=1 and "
          "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 in a container");
    // Open MPI counts physical cores as slots. For two ranks it would bind each rank, with all its
    // threads, to one core.
    plan_.command = {"mpirun", "--oversubscribe", "--mca", "orte_forward_job_control", "1"};
    if (text("OMPI_MCA_hwloc_base_binding_policy").empty())
      plan_.command.insert(plan_.command.end(), {"--bind-to", "none"});
    plan_.command.insert(plan_.command.end(), {"-n", std::to_string(plan_.ranks)});
    for (const auto& [name, value] : plan_.environment)
      if (value) plan_.command.insert(plan_.command.end(), {"-x", name});
    // With these, mpirun would start the ranks through Slurm.
    if (request_.local)
      for (const auto* name : {"SLURM_JOBID", "SLURM_JOB_ID", "SLURM_NODELIST", "SLURM_JOB_NODELIST"})
        plan_.environment.emplace_back(name, std::nullopt);
  }

  void plan_srun() {
    if (!slurm_)
      throw UserError(
          "--starter srun works only inside a Slurm job; use sbatch or salloc, or --starter mpirun");
    const int nodes = slurm_nodes();
    const auto per_task = number("SLURM_CPUS_PER_TASK");
    // --export=ALL passes on the environment of the script, even after `sbatch --export=NONE`. The step must
    // end as soon as a rank fails.
    plan_.command = {"srun", "--ntasks=" + std::to_string(plan_.ranks), "--export=ALL",
                     "--kill-on-bad-exit=1", "--quit-on-interrupt"};
    if (text("SLURM_MPI_TYPE").empty())
      plan_.command.push_back(facts_.srun_has_pmix ? "--mpi=pmix" : "--mpi=none");
    // By default, ranks meet in a tree during MPI_Init if they exchange no data then, and Slurm 22.05
    // sometimes lets ranks go on before the last one has come. Then Open MPI crashes: in 7 of 100 starts on
    // four busy hosts, and in none with the ring (open-mpi/ompi issue 12495).
    set_unless_given("SLURM_PMIX_FENCE", "ring");
    if (plan_.ranks < nodes) plan_.command.push_back("--nodes=" + std::to_string(plan_.ranks));
    if (per_task) plan_.command.push_back("--cpus-per-task=" + std::to_string(*per_task));
    if (in_slurm_step(environment_))
      plan_.command.push_back("--overlap");  // Otherwise srun waits for the CPUs of that step.
    // Without this, srun warns that the script's layout does not match another number of ranks.
    const auto tasks_per_node = number("SLURM_NTASKS_PER_NODE");
    if (tasks_per_node && *tasks_per_node * nodes != plan_.ranks)
      plan_.environment.emplace_back("SLURM_NTASKS_PER_NODE", std::nullopt);
  }

  const LaunchRequest& request_;
  const LaunchFacts& facts_;
  const Environment& environment_;
  const bool slurm_;
  LaunchPlan plan_;
};

}  // namespace

int parse_ranks(const std::string& text) {
  if (text == "all") return all_cores;
  if (const auto ranks = parse_number<int>(text)) return *ranks;
  throw UserError(
      fmt::format("-n {} is not a number of ranks; give 1 or more, or -n all for all cores", text));
}

LaunchPlan plan_launch(const LaunchRequest& request, const LaunchFacts& facts,
                       const Environment& environment) {
  return Planner(request, facts, environment).plan();
}

}  // namespace farandole
