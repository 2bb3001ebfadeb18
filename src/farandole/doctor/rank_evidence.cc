#include "farandole/doctor/rank_evidence.h"

#include <algorithm>
#include <cctype>
#include <ctime>
#include <exception>
#include <fmt/format.h>
#include <span>
#include <sstream>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/timeline/recorder/recorder_file.h"
#include "farandole/timeline/recorder/recorder_format.h"
#include "farandole/timeline/stalled_call.h"

namespace farandole {
namespace {

constexpr std::size_t most_read = 4 << 20;
constexpr std::size_t lines_kept = 8;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// "[12:34:56.789] text" becomes "text".
std::string_view without_time(std::string_view line) {
  constexpr std::string_view shape = "[00:00:00.000] ";
  if (line.size() < shape.size()) return line;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] == '0' ? std::isdigit(static_cast<unsigned char>(line[i])) == 0 : line[i] != shape[i])
      return line;
  return line.substr(shape.size());
}

// Returns the text after "farandole: [rank 3] " in a line of the watchdogs.
std::string_view watch_text(std::string_view line) {
  constexpr std::string_view begin = "farandole: [rank ";
  const auto end = line.find("] ");
  return line.starts_with(begin) && end != std::string_view::npos ? line.substr(end + 2) : std::string_view();
}

std::optional<int> number_behind(std::string_view text, std::string_view before) {
  const auto at = text.find(before);
  return at == std::string_view::npos
             ? std::nullopt
             : std::optional(std::atoi(std::string(text.substr(at + before.size(), 12)).c_str()));
}

class LogReader {
 public:
  void take(std::string_view line) {
    if (line.starts_with("--- ")) return take_mark(line.substr(4));
    line = without_time(line);
    if (line.empty()) return;
    if (take_stall(line)) return;
    if (!take_table(line)) take_complaint(line);
    evidence_.last_lines.emplace_back(line.substr(0, 400));
    if (evidence_.last_lines.size() > lines_kept) evidence_.last_lines.erase(evidence_.last_lines.begin());
  }

  LogEvidence evidence() && {
    evidence_.found = true;
    return std::move(evidence_);
  }

 private:
  // Reads the lines of the supervisor: "2026-11-21 19:20:38: rank 0 of 2 on node1: PROGRAM", "exit code 3",
  // "killed by signal 9 (Killed)".
  void take_mark(std::string_view text) {
    if (contains(text, ": rank ")) {
      evidence_ = LogEvidence();
      in_stall_ = false;
      const auto host = text.find(" on ");
      if (host != std::string_view::npos)
        evidence_.host = text.substr(host + 4, text.find(':', host) - host - 4);
      std::tm local{};
      local.tm_isdst = -1;
      if (::strptime(std::string(text).c_str(), "%Y-%m-%d %H:%M:%S", &local) != nullptr)
        evidence_.start_ns = std::int64_t{::mktime(&local)} * 1'000'000'000;
    }
    if (text.starts_with("exit code ")) evidence_.exit_code = number_behind(text, "exit code ");
    if (text.starts_with("killed by signal ")) evidence_.signal = number_behind(text, "killed by signal ");
  }

  // Returns true if the line belongs to a report of the watchdogs. The stacks in such a
  // report are not errors.
  bool take_stall(std::string_view line) {
    const auto text = watch_text(line);
    if (text.empty()) {
      if (!line.starts_with("  ")) in_stall_ = in_report_ = false;
      if (in_stall_) evidence_.stall += "\n" + std::string(line);
      if (in_report_) take_place(line);
      return in_stall_ || in_report_;
    }
    in_stall_ = text.starts_with("stall: ");
    in_report_ = true;
    if (in_stall_) evidence_.stall = text;
    if (contains(text, "the stall in ") && contains(text, " is over"))
      evidence_.stall.clear(), evidence_.place.clear();
    if (contains(text, "the job ends here")) evidence_.stall_end = text;
    if (text.starts_with("deadlock: ")) evidence_.error = text;
    if (text.starts_with("rank ") && (contains(text, "; rank ") || contains(text, "does not answer")))
      evidence_.losses.emplace_back(text);
    return true;
  }

  void take_place(std::string_view line) {
    constexpr std::string_view before = "  the training thread is at ";
    if (line.starts_with(before))
      evidence_.place = line.substr(before.size(), line.rfind("; its stack:") - before.size());
  }

  // Returns true if the line is one of the table that the error's first line announces, as of
  // calls that differ.
  bool take_table(std::string_view line) {
    constexpr int most = 9;
    if (line.starts_with("  ") && evidence_.error.ends_with(':')) in_table_ = 1;
    if (in_table_ == 0 || in_table_ > most || !line.starts_with("  ")) {
      in_table_ = 0;
      return false;
    }
    if (in_table_++ > 1) evidence_.error += ',';
    std::istringstream words{std::string(line)};
    for (std::string word; words >> word;) evidence_.error += " " + word;
    return true;
  }

  void take_complaint(std::string_view line) {
    evidence_.disk_full |= contains(line, "No space left on device") || contains(line, "Disk quota exceeded");
    evidence_.memory_short |= contains(line, "bad_alloc") || contains(line, "Cannot allocate memory") ||
                              contains(line, "MemoryError") || contains(line, "not enough memory") ||
                              contains(line, "out of memory");
    const auto what = line.find("what():");
    if (line.starts_with("terminate called")) {
      evidence_.uncaught_exception = true;
      evidence_.error = line;
    } else if (what != std::string_view::npos && evidence_.uncaught_exception) {
      auto text = line.substr(what + 7);
      text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
      const auto type = evidence_.error.find('\'');
      const auto type_end = evidence_.error.rfind('\'');
      evidence_.error =
          (type < type_end ? evidence_.error.substr(type + 1, type_end - type - 1) + ": " : "") +
          std::string(text);
    } else if (!evidence_.uncaught_exception &&
               (line.starts_with("farandole") || contains(line, "rror: ") || contains(line, "xception") ||
                (line.ends_with("Error") && !contains(line, " ")))) {  // "MemoryError" of Python
      constexpr std::string_view of_python = "farandole._core.Error: ";
      evidence_.error = line.substr(line.starts_with(of_python) ? of_python.size() : 0);
    }
  }

  LogEvidence evidence_;
  bool in_stall_ = false, in_report_ = false;
  int in_table_ = 0;  // The number of the next line; 0: there is no table.
};

LogEvidence read_lines(std::string_view text) {
  LogReader reader;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    auto line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    reader.take(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::move(reader).evidence();
}

constexpr std::size_t newest_records = 20'000;  // Per thread; this is minutes of a training run.

class RecorderReader {
 public:
  RecorderReader(const RecorderFile& file, RecorderEvidence& evidence) : file_(file), evidence_(evidence) {}

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

LogEvidence read_log(const std::filesystem::path& path) try {
  const auto file = open_regular_file(path);
  const auto size = std::filesystem::file_size(path);
  const auto from = size > most_read ? size - most_read : 0;
  std::string text(size - from, '\0');
  text.resize(read_bytes(file.get(), from, std::as_writable_bytes(std::span(text)), path));
  if (from > 0) text.erase(0, text.find('\n') + 1);
  return read_lines(text);
} catch (const std::exception&) {
  return {};
}

LogEvidence read_last_words(std::string_view text) {
  return read_lines(text);
}

RecorderEvidence read_recorder_evidence(const std::filesystem::path& file) {
  RecorderEvidence evidence;
  try {
    const RecorderFile recorder(file);
    RecorderReader(recorder, evidence).read();
  } catch (const std::exception& error) {
    evidence.trouble = error.what();
  }
  return evidence;
}

std::string describe(const Activity& activity) {
  if (activity.kind == RecordKind::collective)
    return describe_collective(activity.operation, activity.sequence, activity.name);
  const auto category = name_of(activity.category);
  return activity.name == category ? activity.name : fmt::format("{} '{}'", category, activity.name);
}

}  // namespace farandole
