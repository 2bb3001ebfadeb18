#include "farandole/doctor/slurm_evidence.h"

#include <chrono>
#include <sstream>

#include "farandole/launch/command_output.h"

namespace farandole {
namespace {

constexpr std::chrono::seconds patience(3);

// Reads a line such as "ClusterName             = c1".
std::string cluster_name() {
  std::istringstream lines(output_of({"scontrol", "show", "config"}, patience).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, equals, value;
    if (words >> name >> equals >> value && name == "ClusterName") return value;
  }
  return "";
}

}  // namespace

std::map<std::string, std::string> ask_slurm(const JobRecord& job) {
  const auto id = job.slurm.find("JOB_ID");
  const auto cluster = job.slurm.find("CLUSTER_NAME");
  if (id == job.slurm.end() || cluster == job.slurm.end() || cluster_name() != cluster->second) return {};
  const auto answer = output_of({"scontrol", "show", "job", id->second}, patience).value_or("");
  const auto name = job.slurm.find("JOB_NAME");
  // Job numbers start again if a cluster has lost its state.
  if (name != job.slurm.end() && answer.find("JobName=" + name->second) == std::string::npos) return {};
  return job_state_of(answer);
}

}  // namespace farandole
