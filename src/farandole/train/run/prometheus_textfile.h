// Writes current values of a rank as a file for the textfile collector of Prometheus's node exporter. Each
// rank writes a file of its own.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace farandole {

class PrometheusTextfile {
 public:
  enum class Type { gauge, counter };
  static constexpr std::size_t most_series = 40;  // Further ones are left out, and a warning says so once.

  // `folder` is the one that the node exporter of each node reads. The file is
  // `folder`/farandole-`job`-`rank`.prom, and its series have the labels job_id, node and rank. (Prometheus
  // itself sets a label "job".)
  PrometheusTextfile(const std::filesystem::path& folder, std::string_view job, int rank);
  ~PrometheusTextfile();  // removes the file, because Prometheus would show its values for ever
  PrometheusTextfile(const PrometheusTextfile&) = delete;
  PrometheusTextfile& operator=(const PrometheusTextfile&) = delete;

  // The series farandole_`name`. Names of one metric have the same help and type in all files. They end with
  // the base unit (_seconds, _bytes, _ratio), and counters with _total.
  void set(std::string_view name, std::string_view help, Type type, double value);
  // The series farandole_metric{name="`name`"}, for metrics whose names the user chooses.
  void set_metric(std::string_view name, double value);
  // Replaces the file atomically, at most every 10 seconds. If that fails, a warning says so once.
  void publish() noexcept;

 private:
  struct Family {
    std::string help;
    Type type = Type::gauge;
    std::map<std::string, double, std::less<>> series;  // By the labels.
  };
  void set(std::string_view name, std::string_view help, Type type, std::string labels, double value);
  std::string text() const;

  const std::filesystem::path file_;
  const std::string labels_;
  std::map<std::string, Family, std::less<>> families_;
  std::size_t series_ = 0;
  std::int64_t published_ns_ = 0;  // 0: never
  bool warned_of_file_ = false, warned_of_series_ = false;
};

}  // namespace farandole
