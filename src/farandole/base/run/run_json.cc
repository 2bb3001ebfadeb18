#include "farandole/base/run/run_json.h"

#include <cmath>

#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/secrets.h"

namespace farandole {
namespace {

class FactsReader {
 public:
  FactsReader(const Json& object, const std::string& where, std::vector<std::string>& warnings)
      : object_(object), where_(where), warnings_(warnings) {}

  void text(const char* key, std::optional<std::string>& target) {
    const auto* value = find(key);
    if (value == nullptr) return;
    if (value->is_string())
      target = value->get<std::string>();
    else
      wrong(key, "a text");
  }

  void count(const char* key, std::optional<std::int64_t>& target) {
    const auto* value = find(key);
    if (value == nullptr) return;
    if (value->is_number_integer() &&
        !(value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX))
      target = value->get<std::int64_t>();
    else
      wrong(key, "an integer");
  }

  void positive(const char* key, std::optional<double>& target) {
    const auto* value = find(key);
    if (value == nullptr) return;
    if (value->is_number() && value->get<double>() > 0)
      target = value->get<double>();
    else
      wrong(key, "a number above 0");
  }

  void texts(const char* key, std::vector<std::string>& target) {
    const auto* value = find(key);
    if (value == nullptr) return;
    if (!value->is_array()) return wrong(key, "a list of texts");
    target.clear();
    for (const auto& entry : *value) target.push_back(entry.is_string() ? entry.get<std::string>() : "");
  }

  void texts(const char* key, std::map<std::string, std::string>& target) {
    const auto* value = find(key);
    if (value == nullptr) return;
    if (!value->is_object()) return wrong(key, "an object of texts");
    for (const auto& [name, text] : value->items())
      if (text.is_string()) target[name] = text.get<std::string>();
  }

  void numbers(const char* key, std::vector<std::pair<std::string, double>>& target) {
    const auto* value = find(key);
    if (value == nullptr) return;
    if (!value->is_object()) return wrong(key, "an object of numbers");
    target.clear();
    for (const auto& [name, number] : value->items())
      if (number.is_number()) target.emplace_back(name, number.get<double>());
  }

 private:
  const Json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  void wrong(const char* key, const char* what) {
    warnings_.push_back(where_ + ": \"" + key + "\" is not " + what + " and is ignored");
  }

  const Json& object_;
  const std::string& where_;
  std::vector<std::string>& warnings_;
};

}  // namespace

RunFacts read_run_facts(const std::filesystem::path& run_json) {
  RunFacts facts;
  const auto where = run_json.string();
  std::optional<std::string> text;
  try {
    text = read_whole_file(run_json);
  } catch (const Error& error) {
    facts.warnings.push_back(std::string(error.what()) + "; throughput and names are unknown");
  }
  if (!text) return facts;
  const auto object = try_parse_json(*text);
  if (!object.is_object()) {
    facts.warnings.push_back(where + " is damaged (not a JSON object); throughput and names are unknown");
    return facts;
  }
  facts.found = true;
  take_run_facts(object, where, facts);
  return facts;
}

void take_run_facts(const Json& object, const std::string& where, RunFacts& facts) {
  FactsReader reader(object, where, facts.warnings);
  reader.count("ranks", facts.ranks);
  reader.texts("hosts", facts.hosts);
  reader.texts("gpus", facts.gpus);
  reader.texts("gpu_topology", facts.gpu_topology);
  reader.text("device", facts.device);
  reader.text("program", facts.program);
  reader.text("started", facts.started);
  reader.text("ended", facts.ended);
  reader.count("exit_code", facts.exit_code);
  reader.count("restarts", facts.restarts);
  reader.count("total_steps", facts.total_steps);
  reader.count("lost_steps", facts.lost_steps);
  reader.count("skipped_steps", facts.skipped_steps);
  reader.count("rollbacks", facts.rollbacks);
  reader.count("parameters", facts.parameters);
  reader.positive("global_batch", facts.global_batch);
  reader.count("threads", facts.threads);
  reader.count("cores", facts.cores);
  reader.count("memory_mib", facts.memory_mib);
  reader.texts("versions", facts.versions);
  reader.text("between_nodes", facts.between_nodes);
  reader.positive("model_flops", facts.model_flops);
  reader.text("model_flops_from", facts.model_flops_from);
  reader.positive("peak_tflops", facts.peak_tflops);
  reader.text("peak_from", facts.peak_from);
  reader.positive("tflops", facts.tflops);
  reader.positive("mfu", facts.mfu);
  reader.numbers("gpu_memory_by_owner_mib", facts.gpu_memory_by_owner_mib);
  reader.text("sharding", facts.sharding);
  if (const auto size = object.find("bucket_mb"); size != object.end() && !size->is_string())
    reader.positive("bucket_mb", facts.bucket_mb);
  if (const auto config = object.find("config"); config != object.end() && config->is_object())
    facts.config = config->dump();
}

void write_run_facts(const std::filesystem::path& run_json, const RunFacts& facts) {
  Json object;
  const auto set = [&object](const char* key, const auto& value) {
    if (value) object[key] = *value;
  };
  if (facts.program) object["program"] = without_secrets(*facts.program);
  set("ranks", facts.ranks);
  object["hosts"] = facts.hosts;
  set("device", facts.device);
  if (!facts.gpus.empty()) object["gpus"] = facts.gpus;
  if (!facts.gpu_topology.empty()) object["gpu_topology"] = facts.gpu_topology;
  if (facts.global_batch && *facts.global_batch == std::floor(*facts.global_batch))
    object["global_batch"] = static_cast<std::int64_t>(*facts.global_batch);
  else
    set("global_batch", facts.global_batch);
  set("parameters", facts.parameters);
  if (!facts.config.empty()) object["config"] = parse_json(facts.config);
  object["bucket_mb"] = facts.bucket_mb ? Json(*facts.bucket_mb) : Json("auto");
  set("threads", facts.threads);
  set("cores", facts.cores);
  set("memory_mib", facts.memory_mib);
  object["versions"] = facts.versions;
  set("model_flops", facts.model_flops);
  set("model_flops_from", facts.model_flops_from);
  set("peak_tflops", facts.peak_tflops);
  set("peak_from", facts.peak_from);
  set("tflops", facts.tflops);
  set("mfu", facts.mfu);
  for (const auto& [owner, mib] : facts.gpu_memory_by_owner_mib)
    object["gpu_memory_by_owner_mib"][owner] = mib;
  set("between_nodes", facts.between_nodes);
  set("sharding", facts.sharding);
  set("restarts", facts.restarts);
  set("total_steps", facts.total_steps);
  set("lost_steps", facts.lost_steps);
  set("skipped_steps", facts.skipped_steps);
  set("rollbacks", facts.rollbacks);
  set("started", facts.started);
  set("ended", facts.ended);
  set("exit_code", facts.exit_code);
  write_file_atomically(run_json, json_text(object, 2) + "\n");
}

}  // namespace farandole
