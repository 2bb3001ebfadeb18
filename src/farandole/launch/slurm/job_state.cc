#include "farandole/launch/slurm/job_state.h"

#include <ctime>
#include <sstream>
#include <utility>

#include "farandole/base/text/parse_number.h"
#include "farandole/launch/process/child_process.h"

namespace farandole {
namespace {

std::string value_of(const std::map<std::string, std::string>& values, const char* name) {
  const auto found = values.find(name);
  return found == values.end() ? "" : found->second;
}

// Reads a line such as "ClusterName             = c1".
std::string cluster_name(std::chrono::milliseconds patience) {
  std::istringstream lines(output_of({"scontrol", "show", "config"}, patience).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, equals, value;
    if (words >> name >> equals >> value && name == "ClusterName") return value;
  }
  return "";
}

}  // namespace

std::string own_slurm_job(const Environment& environment) {
  const auto text = [&](const char* variable) {
    const char* value = environment(variable);
    return std::string(value == nullptr ? "" : value);
  };
  const auto array = text("SLURM_ARRAY_JOB_ID"), task = text("SLURM_ARRAY_TASK_ID");
  return array.empty() || task.empty() ? text("SLURM_JOB_ID") : array + "_" + task;
}

std::map<std::string, std::string> slurm_facts(const Environment& environment) {
  std::map<std::string, std::string> facts;
  if (!in_slurm_job(environment)) return facts;
  for (const char* name :
       {"JOB_ID", "JOB_NAME", "JOB_PARTITION", "JOB_NODELIST", "JOB_NUM_NODES", "JOB_START_TIME",
        "JOB_END_TIME", "RESTART_COUNT", "CLUSTER_NAME", "MEM_PER_NODE", "MEM_PER_CPU"})
    if (const char* value = environment((std::string("SLURM_") + name).c_str()); value != nullptr)
      facts[name] = value;
  if (facts.contains("JOB_ID")) facts["JOB_ID"] = own_slurm_job(environment);
  return facts;
}

JobState job_state_of(const std::string& scontrol_output) {
  JobState state;
  std::istringstream words(scontrol_output);
  for (std::string word; words >> word;)
    for (const char* field : {"JobState", "Reason", "TimeLimit", "EndTime", "ExitCode", "FailedNode",
                              "NodeList", "Restarts", "PreemptTime"})
      if (const auto name = std::string(field) + "="; word.starts_with(name))
        state.emplace(field, word.substr(name.size()));
  std::tm local{};
  local.tm_isdst = -1;
  if (const auto end = state.find("EndTime");
      end != state.end() && ::strptime(end->second.c_str(), "%Y-%m-%dT%H:%M:%S", &local) != nullptr)
    state["EndUnix"] = std::to_string(::mktime(&local));
  return state;
}

JobAnswer ask_for_job(const std::string& job, std::chrono::milliseconds patience) {
  JobAnswer answer;
  const auto end = run_command({"scontrol", "show", "job", job}, patience);
  if (!end) return answer;
  answer.text = end->text;
  if (end->exit_code == 0)
    answer.state = job_state_of(end->text);
  else
    answer.gone = end->text.find("Invalid job id") != std::string::npos;
  return answer;
}

JobState ask_for_job_state(const std::string& job, std::chrono::milliseconds patience) {
  return ask_for_job(job, patience).state;
}

JobState ask_for_recorded_job(const std::map<std::string, std::string>& slurm,
                              std::chrono::milliseconds patience) {
  const auto id = value_of(slurm, "JOB_ID"), name = value_of(slurm, "JOB_NAME"),
             cluster = value_of(slurm, "CLUSTER_NAME");
  if (id.empty() || name.empty()) return {};
  if (!cluster.empty() && cluster_name(patience) != cluster) return {};
  auto answer = ask_for_job(id, patience);
  // A name may contain spaces, and it ends with its line.
  if ((answer.text + "\n").find("JobName=" + name + "\n") == std::string::npos) return {};
  return std::move(answer.state);
}

bool is_forgotten_job(const std::map<std::string, std::string>& slurm, std::chrono::milliseconds patience) {
  const auto id = value_of(slurm, "JOB_ID"), cluster = value_of(slurm, "CLUSTER_NAME");
  return !id.empty() && (cluster.empty() || cluster_name(patience) == cluster) &&
         ask_for_job(id, patience).gone;
}

int restarts_of(const JobState& state) {
  return parse_number<int>(value_of(state, "Restarts")).value_or(0);
}

}  // namespace farandole
