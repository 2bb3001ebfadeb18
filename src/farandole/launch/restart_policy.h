// Decides whether a job that has failed is started again (farandole run --max-restarts).
// Thread safety: none; use from one thread at a time.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace farandole {

// How a job ended.
struct JobEnd {
  int exit_code = 0;
  bool told = false;                                  // A signal told the launcher to end the job.
  std::filesystem::path run;                          // Run directory; empty: the launcher knows none.
  std::map<std::string, std::string> job_state = {};  // JobRecord::job_state
  bool complete = true;                               // Every rank has left a record of its end.
  bool unanswered = false;                            // LostHosts::unanswered
};

// How far a run has come: its newest checkpoint and the last step in metrics.jsonl, as text; empty if it has
// neither. Reads only the end of the file.
std::string progress_of(const std::filesystem::path& run);

class RestartPolicy {
 public:
  explicit RestartPolicy(int max_restarts) : max_restarts_(max_restarts) {}

  struct Decision {
    bool restart = false;
    bool diagnose = false;  // Show why the job failed.
    std::string message;    // For the user; empty if there is nothing to say.
  };
  // A job is not started again if it is done, was told to end, was refused because of a user's error or
  // of corrupt input, has saved for a requeue, or fails for the third time in a row with the same exit
  // code and progress.
  Decision decide(const JobEnd& end);
  int restarts() const { return restarts_; }  // so far

 private:
  const int max_restarts_;
  int restarts_ = 0;
  std::string last_failure_;
  int same_failures_ = 0;
};

}  // namespace farandole
