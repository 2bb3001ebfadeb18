#include "farandole/comm/watch/start_watch.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/host.h"
#include "farandole/base/process/launch_environment.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/base/text/phrases.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;
// Ranks of a host start within this time of each other, and end within it if one of them says why.
constexpr std::int64_t patience_ns = 5 * ns_per_second;
// A start takes longer than a collective: programs are loaded from a file system, and nodes are busy.
constexpr std::int64_t least_report_ns = 30 * ns_per_second, least_abort_ns = 60 * ns_per_second;

// What the ranks of this job run on this host.
struct RanksOfHost {
  std::vector<int> here;                     // runs the program of this process
  std::map<int, std::string> other_program;  // runs this program instead
  std::vector<int> ended;                    // has no process left
};

std::string program_of(const fs::path& process) {
  std::error_code ignored;
  return fs::read_symlink(process / "exe", ignored).string();
}

// Returns the value of a variable in /proc/PID/environ; "" if it has none.
std::string_view variable_in(std::string_view environ, std::string_view name) {
  for (std::size_t begin = 0; begin < environ.size();) {
    const auto entry = environ.substr(begin, environ.find('\0', begin) - begin);
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
    begin += entry.size() + 1;
  }
  return "";
}

// Slurm names the ranks of a host, as in "0,1,4"; Open MPI's mpirun ends the job itself if one
// ends too early.
std::set<int> expected_ranks(const Environment& environment) {
  std::set<int> ranks;
  const char* const list = environment("SLURM_GTIDS");
  if (list == nullptr || !in_slurm_step(environment) || environment("OMPI_COMM_WORLD_SIZE") != nullptr)
    return ranks;
  std::istringstream words{std::string(list)};
  for (std::string word; std::getline(words, word, ',');)
    if (const auto rank = parse_number<int>(word)) ranks.insert(*rank);
  return ranks;
}

// Reads the processes of this user. std::nullopt if the launcher does not name rank and job, or
// /proc hides them.
std::optional<RanksOfHost> ranks_of_host(const Environment& environment) {
  const char* const job = environment("PMIX_NAMESPACE");
  const auto own = launched_rank(environment);
  if (job == nullptr || !own) return std::nullopt;
  const auto own_program = program_of("/proc/self");
  // Of all ranks seen. A rank that runs several programs has that of this process, if it is among them.
  std::map<int, std::string> programs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const auto name = entry.path().filename().string();
    if (!parse_number<int>(name)) continue;
    std::ostringstream environ;
    environ << std::ifstream(entry.path() / "environ", std::ios::binary).rdbuf();
    const auto text = environ.str();
    if (variable_in(text, "PMIX_NAMESPACE") != job) continue;
    const auto rank = parse_number<int>(variable_in(text, "PMIX_RANK"));
    const auto program = program_of(entry.path());
    if (!rank || program.empty()) continue;
    auto& known = programs[*rank];
    if (known.empty() || program == own_program) known = program;
  }
  RanksOfHost found;
  for (const auto& [rank, program] : programs) {
    if (program == own_program)
      found.here.push_back(rank);
    else
      found.other_program[rank] = fs::path(program).filename().string();
  }
  if (std::find(found.here.begin(), found.here.end(), own->value) == found.here.end()) return std::nullopt;
  for (const int rank : expected_ranks(environment))
    if (!programs.contains(rank)) found.ended.push_back(rank);
  return found;
}

constexpr const char* remedy =
    "all ranks of a job must start the same program; give other programs (srun --multi-prog, a script that chooses by rank) "
    "a job step of their own";

std::string who_has_not_come(const std::optional<RanksOfHost>& ranks) {
  if (!ranks) return remedy;
  std::vector<std::string> others;
  for (const auto& [rank, program] : ranks->other_program)
    others.push_back(fmt::format("rank {} runs {}", rank, printable(program)));
  if (!others.empty()) return fmt::format("on this host, {}; {}", describe_list(others, 8), remedy);
  return fmt::format(
      "all ranks of this host wait ({}), so a rank of another host has not come, or the hosts cannot reach each other; {}",
      describe_ranks(ranks->here), remedy);
}

}  // namespace

StartWatch::StartWatch(const WatchdogOptions& options)
    : options_(options), thread_(start_quiet_thread([this] { run(); })) {}

StartWatch::~StartWatch() {
  stop_.stop();
  thread_.join();
}

void StartWatch::run() {
  const auto limit_ns = [](double seconds, std::int64_t least_ns) {
    return seconds > 0 ? std::max(WatchdogOptions::to_ns(seconds), least_ns) : 0;
  };
  const auto report_ns = limit_ns(options_.stall_seconds, least_report_ns);
  const auto abort_ns = limit_ns(options_.stall_abort_seconds, least_abort_ns);
  const auto launched = launched_rank(&std::getenv);
  const int own_rank = launched ? launched->value : 0;
  std::int64_t ended_ns = 0;  // when a rank was first seen to have ended
  bool reported = false;
  while (stop_.sleep(std::chrono::nanoseconds(patience_ns))) {
    const auto now = now_ns();
    const auto ranks = ranks_of_host(&std::getenv);
    const bool speaks = !ranks || ranks->here.front() == own_rank;
    const auto waited = fmt::format("on {} for {}", host_name(), describe_seconds(now - start_ns_));
    const auto end = [&](ExitCode code, const std::string& why) {
      if (speaks) say_on_stderr(own_rank, why);
      // The line of the speaking rank comes first.
      if (!speaks) stop_.sleep(std::chrono::seconds(1));
      std::_Exit(static_cast<int>(code));
    };
    if (!ranks || ranks->ended.empty())
      ended_ns = 0;
    else if (ended_ns == 0)
      ended_ns = now;
    else if (now - ended_ns >= patience_ns)
      end(ExitCode::user_error,
          fmt::format(
              "{} of this job has ended on {} before the ranks have met, so the others cannot start; {}",
              describe_ranks(ranks->ended), host_name(), remedy));
    if (abort_ns > 0 && now - start_ns_ >= abort_ns)
      end(ExitCode::peer_lost, fmt::format("the job ends, because its ranks have not met {}: {}", waited,
                                           who_has_not_come(ranks)));
    if (speaks && !reported && report_ns > 0 && now - start_ns_ >= report_ns) {
      say_on_stderr(own_rank, fmt::format("stall: the ranks of the job have not met {}: {}", waited,
                                          who_has_not_come(ranks)));
      reported = true;
    }
  }
}

}  // namespace farandole
