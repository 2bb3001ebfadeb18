#include "farandole/doctor/diagnosis_json.h"

#include <nlohmann/json.hpp>

#include "farandole/doctor/rank_words.h"

namespace farandole {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}
template <class T>
Json value_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}
Json time_or_null(std::int64_t time_ns) {
  return time_ns == 0 ? Json() : Json(time_of(time_ns));
}

Json rank_json(const RankEvidence& rank, const Diagnosis& diagnosis) {
  Json json = {{"rank", rank.rank},
               {"host", text_or_null(rank.host)},
               {"end", describe_end(rank)},
               {"exit_code", Json()},
               {"signal", Json()},
               {"asked_to_stop", Json()},
               {"ended", Json()},
               {"peak_memory_bytes", Json()},
               {"step", Json()},
               {"doing", text_or_null(describe_last_moment(rank, diagnosis))},
               {"versions", Json::object()}};
  if (rank.end) {
    if (rank.end->signal == 0) json["exit_code"] = rank.end->exit_code;
    if (rank.end->signal != 0) json["signal"] = rank.end->signal;
    json["asked_to_stop"] = rank.end->told;
    json["ended"] = time_or_null(rank.end->time_ns);
    if (rank.end->peak_memory_bytes > 0) json["peak_memory_bytes"] = rank.end->peak_memory_bytes;
    if (!rank.end->kernel.empty()) json["versions"]["kernel"] = rank.end->kernel;
  } else if (rank.log.exit_code || rank.log.signal) {
    json["exit_code"] = value_or_null(rank.log.exit_code);
    json["signal"] = value_or_null(rank.log.signal);
  }
  if (rank.recorder) {
    if (rank.recorder->step >= 0) json["step"] = rank.recorder->step;
    for (const auto& [what, value] : rank.recorder->facts) json["versions"][what] = value;
  }
  return json;
}

}  // namespace

std::string diagnosis_json(const RunEvidence& run, const Diagnosis& diagnosis) {
  Json json = {{"farandole_doctor", 1},
               {"run", run.folder.string()},
               {"verdict", diagnosis.verdict},
               {"cause", name_of(diagnosis.cause)},
               {"rank", value_or_null(diagnosis.rank)},
               {"host", text_or_null(diagnosis.host)},
               {"step", value_or_null(diagnosis.step)},
               {"phase", text_or_null(diagnosis.phase)},
               {"time", time_or_null(diagnosis.time_ns)},
               {"collective", Json()},
               {"exit_code", Json()},
               {"free_bytes", value_or_null(run.free_bytes)},
               {"checkpoint_step", value_or_null(run.checkpoint_step)},
               {"evidence", diagnosis.evidence},
               {"next", diagnosis.next},
               {"troubles", run.troubles},
               {"ranks", Json::array()}};
  if (diagnosis.call)
    json["collective"] = {{"text", diagnosis.call->text},
                          {"waiting", diagnosis.call->waiting},
                          {"missing", diagnosis.call->missing}};
  if (run.job && run.job->end_ns != 0)
    json["exit_code"] = run.job->exit_code;
  else if (run.facts.exit_code)
    json["exit_code"] = *run.facts.exit_code;
  for (const auto& rank : run.ranks) json["ranks"].push_back(rank_json(rank, diagnosis));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace farandole
