// How a job ends after an error: one line on stderr, by one rank of each node, and the exit code
// of the error.
// Thread safety: any thread may call this at any time. Functions say where this is not so.
#pragma once

#include <atomic>
#include <exception>
#include <string>
#include <sys/types.h>
#include <thread>

#include "farandole/base/error.h"

namespace farandole {

class Job;

// What an exception says to the user. The text of an Error may have several lines, for example a table.
struct JobError {
  std::string text;
  ExitCode code = ExitCode::failure;
  int first_rank = -1;  // If all ranks know the error (AgreedError, or a job with one rank): who says it.
};
// `job` is null if there is none.
JobError describe_error(const std::exception_ptr& error, const Job* job);

// Ends all ranks of the job at once. If another rank of this node has said before why the job ends, this rank
// says nothing. `program` begins the line.
[[noreturn]] void end_job(Job& job, const std::string& program, const JobError& error);
// An error that all ranks know: the rank of the error says it, and the caller ends normally.
void say_agreed_error(const Job& job, const std::string& program, const JobError& error);

// While this object exists, an exception that leaves main, std::terminate() on any thread, and exit() inside
// the session end the job as run_session() does. A terminate handler that the program has set before is
// called after the line was written; the destructor puts it back. There is one object per process.
// Thread safety: only the main thread may create and destroy this.
class ErrorExit {
 public:
  ErrorExit();
  ~ErrorExit();
  ErrorExit(const ErrorExit&) = delete;
  ErrorExit& operator=(const ErrorExit&) = delete;

  // From now on errors belong to a rank of this job; nullptr: MPI does not run yet or any more.
  void attend(Job* job) { job_ = job; }

 private:
  [[noreturn]] static void on_terminate();
  static void on_exit(int code, void*);
  [[noreturn]] void terminate(const std::exception_ptr& error);
  void exit(int code);

  std::atomic<Job*> job_{nullptr};
  const std::terminate_handler previous_;
  const std::thread::id training_thread_ = std::this_thread::get_id();
  const pid_t process_;
};

}  // namespace farandole
