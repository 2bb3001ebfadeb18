// Reads what the flight recorder of a rank tells.
#include <algorithm>
#include <fmt/format.h>

#include "farandole/base/error.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/doctor/run_evidence.h"
#include "farandole/timeline/recorder/recorder_file.h"
#include "farandole/timeline/recorder/recorder_format.h"

namespace farandole {
namespace {

constexpr std::size_t newest_records = 20'000;  // Per thread; this is minutes of a training run.

class Reading {
 public:
  Reading(const RecorderFile& file, RecorderEvidence& evidence) : file_(file), evidence_(evidence) {}

  void read() {
    evidence_.readable = true;
    evidence_.closed = file_.closed();
    evidence_.host = file_.host();
    evidence_.pid = file_.process();
    evidence_.world_size = file_.world_size();
    evidence_.start_ns = evidence_.last_ns = file_.start_realtime_ns();
    evidence_.step = file_.last_step();
    evidence_.facts = file_.facts();
    if (const auto limit = evidence_.facts.extract(std::string(recorder::stall_seconds_fact)); !limit.empty())
      evidence_.stall_limit_ns = static_cast<std::int64_t>(
          std::clamp(parse_number<double>(limit.mapped()).value_or(0), 0.0, 1e9) * 1e9);
    RecordDamage damage;
    for (std::size_t slot = 0; slot < file_.threads().size(); ++slot) {
      for (const Record& record : file_.newest_records(slot, newest_records, &damage)) take(record, slot);
      if (!evidence_.closed) take_open(slot);
    }
    if (damage.records > 0)
      evidence_.trouble =
          fmt::format("{}: {} of its newest records are damaged or missing", file_.path(), damage.records);
    if (!file_.problems().empty()) evidence_.trouble = file_.problems().front();
  }

 private:
  std::int64_t real(std::int64_t monotonic_ns) const {
    return file_.start_realtime_ns() + (monotonic_ns - file_.start_monotonic_ns());
  }

  template <class Event>
  Activity activity(const Event& event) const {
    Activity activity;
    activity.kind = event.kind;
    activity.category = event.category;
    activity.name = file_.names().at(event.name);
    if (event.kind == RecordKind::collective) activity.operation = file_.names().at(event.operation);
    activity.communicator = event.communicator;
    activity.sequence = event.sequence;
    activity.start_ns = real(event.start_ns);
    return activity;
  }

  void take(const Record& record, std::size_t slot) {
    evidence_.last_ns = std::max(evidence_.last_ns, real(record.end_ns));
    // Outside steps, as in an evaluation or between epochs, the header has no step.
    if (file_.last_step() < 0) evidence_.step = std::max(evidence_.step, record.step);
    if (record.kind != RecordKind::span && record.kind != RecordKind::collective) return;
    auto taken = activity(record);
    taken.end_ns = real(record.end_ns);
    if (record.kind == RecordKind::collective) take_call(taken);
    if (slot != 0 || record.track != 0 || record.category == Category::step) return;
    if (!evidence_.did_last || evidence_.did_last->end_ns <= taken.end_ns) evidence_.did_last = taken;
  }

  void take_open(std::size_t slot) {
    const auto open = file_.open(slot);
    if (!open) return;
    constexpr std::int64_t ten_years = 10ll * 366 * 24 * 3600 * 1'000'000'000;
    const auto from = file_.start_monotonic_ns();
    // This record was not written as a span.
    if (open->start_ns < from || open->start_ns - from > ten_years) return;
    const auto taken = activity(*open);
    if (open->kind == RecordKind::collective) take_call(taken);
    if (slot == 0) evidence_.doing = taken;
    evidence_.last_ns = std::max(evidence_.last_ns, taken.start_ns);
  }

  void take_call(const Activity& call) {
    const auto [known, is_new] = evidence_.calls.emplace(call.communicator, call);
    if (!is_new && known->second.sequence <= call.sequence) known->second = call;
  }

  const RecorderFile& file_;
  RecorderEvidence& evidence_;
};

}  // namespace

RecorderEvidence read_recorder_evidence(const std::filesystem::path& file) {
  RecorderEvidence evidence;
  try {
    const RecorderFile recorder(file);
    Reading(recorder, evidence).read();
  } catch (const std::exception& error) {
    evidence.trouble = error.what();
  }
  return evidence;
}

}  // namespace farandole
