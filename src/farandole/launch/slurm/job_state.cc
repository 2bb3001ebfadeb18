#include "farandole/launch/slurm/job_state.h"

#include <ctime>
#include <sstream>

#include "farandole/base/parse_number.h"
#include "farandole/launch/process/command_output.h"

namespace farandole {

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

JobState ask_for_job_state(const std::string& job, std::chrono::milliseconds patience) {
  return job_state_of(output_of({"scontrol", "show", "job", job}, patience).value_or(""));
}

int restarts_of(const JobState& state) {
  const auto found = state.find("Restarts");
  return found == state.end() ? 0 : parse_number<int>(found->second).value_or(0);
}

}  // namespace farandole
