#include "farandole/launch/slurm/allocation.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>
#include <numeric>
#include <poll.h>
#include <sstream>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/text/phrases.h"
#include "farandole/launch/process/child_process.h"
#include "farandole/launch/slurm/job_state.h"

namespace farandole {
namespace {

constexpr std::chrono::seconds answer_time(30);
constexpr int most_cpus = 1'000'000;  // Of a node; a greater number is none.

}  // namespace

std::vector<int> cpus_by_node(std::string_view text) {
  std::vector<int> cpus;
  const char* next = text.data();
  const char* const end = text.data() + text.size();
  while (next != end) {
    int count = 0, times = 1;
    auto [rest, error] = std::from_chars(next, end, count);
    if (error != std::errc() || count < 1) return {};
    if (std::string_view(rest, static_cast<std::size_t>(end - rest)).starts_with("(x")) {
      const auto repeat = std::from_chars(rest + 2, end, times);
      if (repeat.ec != std::errc() || times < 1 || times > most_cpus || repeat.ptr == end ||
          *repeat.ptr != ')')
        return {};
      rest = repeat.ptr + 1;
    }
    cpus.insert(cpus.end(), static_cast<std::size_t>(times), count);
    if (rest != end && (*rest != ',' || rest + 1 == end)) return {};
    next = rest == end ? end : rest + 1;
  }
  return cpus;
}

std::optional<ShrunkAllocation> shrunk_allocation(const std::vector<std::string>& before,
                                                  const std::vector<std::string>& now, int ranks,
                                                  const Environment& environment) {
  const char* const told = environment("SLURM_JOB_CPUS_PER_NODE");
  auto cpus = cpus_by_node(told == nullptr ? "" : told);
  const bool known = cpus.size() == before.size();
  if (!known) cpus.assign(before.size(), 1);
  ShrunkAllocation left;
  std::vector<std::string> hosts;
  std::vector<int> cpus_left;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const bool lost = std::find(now.begin(), now.end(), before[i]) == now.end();
    (lost ? left.lost : hosts).push_back(before[i]);
    if (!lost) cpus_left.push_back(cpus[i]);
  }
  if (left.lost.empty() || hosts.empty()) return std::nullopt;
  const auto sum = [](const auto& of) { return std::accumulate(of.begin(), of.end(), std::int64_t{0}); };
  left.hosts = hosts.size();
  left.ranks = static_cast<int>(std::max<std::int64_t>(1, ranks * sum(cpus_left) / sum(cpus)));
  const auto set = [&](std::initializer_list<const char*> names, const std::optional<std::string>& value) {
    for (const char* name : names)
      if (environment(name) != nullptr) left.environment.emplace_back(name, value);
  };
  const auto per_host = (static_cast<std::size_t>(left.ranks) + left.hosts - 1) / left.hosts;
  set({"SLURM_JOB_NODELIST", "SLURM_NODELIST"}, fmt::format("{}", fmt::join(hosts, ",")));
  set({"SLURM_JOB_NUM_NODES", "SLURM_NNODES"}, std::to_string(left.hosts));
  set({"SLURM_NTASKS", "SLURM_NPROCS"}, std::to_string(left.ranks));
  set({"SLURM_TASKS_PER_NODE"}, fmt::format("{}(x{})", per_host, left.hosts));
  set({"SLURM_JOB_CPUS_PER_NODE"},
      known ? std::optional(fmt::format("{}", fmt::join(cpus_left, ","))) : std::nullopt);
  return left;
}

namespace {

std::vector<std::string> hosts_in(const std::string& list) {
  std::istringstream lines(output_of({"scontrol", "show", "hostnames", list}, answer_time).value_or(""));
  return {std::istream_iterator<std::string>(lines), {}};
}

std::vector<std::string> hosts_of_job(const std::string& job) {
  const auto state = ask_for_job_state(job, answer_time);
  const auto list = state.find("NodeList");
  return list == state.end() ? std::vector<std::string>() : hosts_in(list->second);
}

// Returns whether a job step on that many hosts of this job runs to its end.
bool all_hosts_answer(std::size_t hosts) {
  return output_of({"srun", "--overlap", "--mpi=none", fmt::format("--nodes={}", hosts),
                    fmt::format("--ntasks={}", hosts), "--ntasks-per-node=1", "true"},
                   answer_time)
      .has_value();
}

// Slurm needs minutes (SlurmdTimeout) to notice that a host is lost. A start before that would fail.
// Therefore, if ranks have left no record, this waits until all hosts answer, hosts are lost, or a signal
// arrives. A host that restarts quickly can make Slurm 22.05 list all hosts but start no step on them. Then
// the result is std::nullopt.
std::optional<std::vector<std::string>> settled_hosts(const std::string& job, std::size_t before,
                                                      bool complete) {
  const auto signals = signal_descriptor({SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1});
  constexpr std::int64_t longest_ns = 900'000'000'000;
  constexpr int pause_ms = 5'000;
  bool said = false;
  for (const auto begin_ns = now_ns();;) {
    auto hosts = hosts_of_job(job);
    pollfd told{signals.get(), POLLIN, 0};
    if (complete || hosts.size() < before || all_hosts_answer(before)) return hosts;
    if (!std::exchange(said, true))
      fmt::print(stderr, "farandole run: a host of the job does not answer; waiting for at most {}\n",
                 describe_seconds(longest_ns));
    if (::poll(&told, 1, pause_ms) > 0) return hosts;
    if (now_ns() - begin_ns > longest_ns) return std::nullopt;
  }
}

}  // namespace

LostHosts look_for_lost_hosts(int ranks, std::optional<int> min_ranks, bool complete) {
  const auto job = slurm_facts(&std::getenv);
  if (!job.contains("JOB_ID") || !job.contains("JOB_NODELIST")) return {};
  const auto before = hosts_in(job.at("JOB_NODELIST"));
  if (before.size() < 2) return {};
  const auto now = settled_hosts(job.at("JOB_ID"), before.size(), complete);
  if (!now)
    return {.unanswered = true,
            .message = "the ranks are not started again: not all hosts of the job answer"};
  const auto left = shrunk_allocation(before, *now, ranks, &std::getenv);
  if (!left) return {};
  const auto count = [](auto number, const char* noun) {
    return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
  };
  const auto what =
      fmt::format("{} {} lost, and the remaining {} {} room for {}", describe_list(left->lost, 8),
                  left->lost.size() == 1 ? "is" : "are", count(left->hosts, "host"),
                  left->hosts == 1 ? "has" : "have", count(left->ranks, "rank"));
  if (left->ranks < min_ranks.value_or(ranks))
    return {.too_many = true,
            .message = fmt::format("the job is not started again: {}; --min-ranks {} would allow that", what,
                                   left->ranks)};
  for (const auto& [name, value] : left->environment)
    value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
  return {.ranks = left->ranks, .message = what};
}

}  // namespace farandole
