#include "farandole/launch/job_record.h"

#include <system_error>

#include <nlohmann/json.hpp>

#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/file_bytes.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

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
  for (const auto& signal : json.at("signals")) job.signals.push_back({signal.at(0), signal.at(1)});
  job.job_state = json.at("job_state").get<std::map<std::string, std::string>>();
  if (json.contains("free_bytes")) job.free_bytes = json.at("free_bytes").get<std::int64_t>();
  return job;
}

}  // namespace

std::map<std::string, std::string> slurm_facts(const Environment& environment) {
  std::map<std::string, std::string> facts;
  if (!in_slurm_job(environment)) return facts;
  for (const char* name :
       {"JOB_ID", "JOB_NAME", "JOB_PARTITION", "JOB_NODELIST", "JOB_NUM_NODES", "JOB_START_TIME",
        "JOB_END_TIME", "RESTART_COUNT", "CLUSTER_NAME", "MEM_PER_NODE", "MEM_PER_CPU"})
    if (const char* value = environment((std::string("SLURM_") + name).c_str()); value != nullptr)
      facts[name] = value;
  return facts;
}

bool write_job(const fs::path& file, const JobRecord& job) {
  return replace_file(file, to_json(job).dump(2, ' ', true, Json::error_handler_t::replace) + "\n");
}

std::optional<JobRecord> read_job(const fs::path& file) {
  const auto text = read_whole_file(file);
  if (!text) return std::nullopt;
  try {
    return parse_job_record(Json::parse(*text));
  } catch (const nlohmann::json::exception&) {
    throw CorruptInput(file.string() + " is damaged: it is not a job record of farandole run");
  }
}

}  // namespace farandole
