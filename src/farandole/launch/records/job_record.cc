#include "farandole/launch/records/job_record.h"

#include <chrono>
#include <cstdlib>
#include <fmt/format.h>
#include <system_error>
#include <unistd.h>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/host.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/secrets.h"
#include "farandole/base/version.h"
#include "farandole/launch/slurm/job_state.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds slurm_patience(3);  // A busy Slurm controller must not delay a requeue.

Json to_json(const JobRecord& job) {
  Json json = {{"launch", job.launch},    {"ranks", job.ranks},   {"starter", job.starter},
               {"host", job.host},        {"pid", job.pid},       {"version", job.version},
               {"program", job.program},  {"folder", job.folder}, {"slurm", job.slurm},
               {"start_ns", job.start_ns}};
  if (job.end_ns == 0) return json;
  json["end_ns"] = job.end_ns;
  if (job.requeued_ns != 0) json["requeued_ns"] = job.requeued_ns;
  json["exit_code"] = job.exit_code;
  json["message"] = job.message;
  json["starter_said"] = job.starter_said;
  json["starter_signal"] = job.starter_signal;
  json["signals"] = Json::array();
  for (const auto& signal : job.signals) json["signals"].push_back({signal.number, signal.time_ns});
  json["job_state"] = job.job_state;
  if (job.free_bytes) json["free_bytes"] = *job.free_bytes;
  return json;
}

JobRecord parse_job_record(const Json& json) {
  JobRecord job;
  job.launch = json.at("launch");
  job.ranks = json.at("ranks");
  job.starter = json.at("starter");
  job.host = json.at("host");
  job.pid = json.at("pid");
  job.version = json.at("version");
  job.program = json.at("program").get<std::vector<std::string>>();
  job.folder = json.at("folder");
  job.slurm = json.at("slurm").get<std::map<std::string, std::string>>();
  job.start_ns = json.at("start_ns");
  if (!json.contains("end_ns")) return job;
  job.end_ns = json.at("end_ns");
  job.requeued_ns = json.value("requeued_ns", std::int64_t{0});
  job.exit_code = json.at("exit_code");
  job.message = json.at("message");
  job.starter_said = json.at("starter_said");
  job.starter_signal = json.value("starter_signal", 0);
  for (const auto& signal : json.at("signals")) job.signals.push_back({signal.at(0), signal.at(1)});
  job.job_state = json.at("job_state").get<std::map<std::string, std::string>>();
  if (json.contains("free_bytes")) job.free_bytes = json.at("free_bytes").get<std::int64_t>();
  return job;
}

}  // namespace

JobRecord record_start(int ranks, const std::string& starter, const std::vector<std::string>& program) {
  JobRecord job;
  job.start_ns = real_time_ns();
  job.host = host_name();
  job.pid = ::getpid();
  job.launch = fmt::format("{}-{}-{}", job.start_ns, job.host, job.pid);
  job.ranks = ranks;
  job.starter = starter;
  job.version = version();
  job.program = without_secrets(program);
  job.folder = fs::current_path();
  job.slurm = slurm_facts(&std::getenv);
  // Slurm sets SLURM_JOB_END_TIME from version 22.05.3 on.
  if (job.slurm.contains("JOB_ID") && !job.slurm.contains("JOB_END_TIME")) {
    const auto state = ask_for_job_state(job.slurm.at("JOB_ID"), slurm_patience);
    if (state.contains("EndUnix") && state.at("TimeLimit") != "UNLIMITED")
      job.slurm["JOB_END_TIME"] = state.at("EndUnix");
  }
  return job;
}

void ask_for_state(JobRecord& job) {
  if (const auto id = job.slurm.find("JOB_ID"); id != job.slurm.end())
    job.job_state = ask_for_job_state(id->second, slurm_patience);
}

bool write_job(const fs::path& file, const JobRecord& job) {
  return replace_file(file, ascii_json_text(to_json(job), 2) + "\n");
}

std::optional<JobRecord> read_job(const fs::path& file) {
  const auto text = read_whole_file(file);
  if (!text) return std::nullopt;
  try {
    return parse_job_record(parse_json(*text));
  } catch (const Json::exception&) {
    throw CorruptInput(file.string() + " is damaged: it is not a job record of farandole run");
  }
}

}  // namespace farandole
