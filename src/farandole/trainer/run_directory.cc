#include "farandole/trainer/run_directory.h"

#include <ctime>
#include <fstream>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "farandole/base/atomic_file.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

RunDirectory::RunDirectory(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error)
    throw UserError("run directory " + folder_.string() + " cannot be made: " + error.message() +
                    "; choose another --run-dir");
  if (::access(folder_.c_str(), W_OK | X_OK) != 0)
    throw UserError("run directory " + folder_.string() + " is not writable; choose another --run-dir");
}

void RunDirectory::started(const RunDescription& facts) {
  std::int64_t restarts = 0;
  if (std::ifstream earlier(run_json()); earlier) {
    const auto json = nlohmann::json::parse(earlier, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.value("restarts", nlohmann::json()).is_number_integer())
      restarts = json["restarts"].get<std::int64_t>() + 1;
  }
  const auto bucket_size = facts.bucket_mb > 0 ? nlohmann::json(facts.bucket_mb) : nlohmann::json("auto");
  const nlohmann::ordered_json json = {{"program", facts.program},
                                       {"ranks", facts.ranks},
                                       {"hosts", facts.hosts},
                                       {"device", facts.device},
                                       {"global_batch", facts.global_batch},
                                       {"parameters", facts.parameters},
                                       {"config", nlohmann::json::parse(facts.config)},
                                       {"bucket_mb", bucket_size},
                                       {"threads", facts.threads},
                                       {"cores", facts.cores},
                                       {"versions", facts.versions},
                                       {"restarts", restarts},
                                       {"started", utc_now()}};
  started_ = json.dump(2);
  write_file_atomically(run_json(), started_ + "\n");
}

void RunDirectory::ended(int exit_code) {
  if (started_.empty()) return;
  auto json = nlohmann::ordered_json::parse(started_);
  json["ended"] = utc_now();
  json["exit_code"] = exit_code;
  try {
    write_file_atomically(run_json(), json.dump(2) + "\n");
  } catch (const Error& error) {
    spdlog::warn("run.json does not tell that the run ended with {}: {}", exit_code, error.what());
  }
}

}  // namespace farandole
