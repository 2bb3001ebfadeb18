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

class Session;

// What an exception says to the user. The text of an Error may have several lines, for example a table.
struct SessionError {
  std::string text;
  ExitCode code = ExitCode::failure;
  int first_rank = -1;  // If all ranks know the error (AgreedError, or a job with one rank): who says it.
};
// `session` is null if there is none.
SessionError describe_error(const std::exception_ptr& error, const Session* session);

// Ends all ranks of the job at once. If another rank of this node has said before why the job ends, this rank
// says nothing. `program` begins the line.
[[noreturn]] void end_job(Session& session, const std::string& program, const SessionError& error);
// An error that all ranks know: the rank of the error says it, and the caller ends normally.
void say_agreed_error(const Session& session, const std::string& program, const SessionError& error);

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

  // From now on errors belong to a rank of this session; nullptr: MPI does not run yet or any more.
  void attend(Session* session) { session_ = session; }

 private:
  [[noreturn]] static void on_terminate();
  static void on_exit(int code, void*);
  [[noreturn]] void terminate(const std::exception_ptr& error);
  void exit(int code);

  std::atomic<Session*> session_{nullptr};
  const std::terminate_handler previous_;
  const std::thread::id training_thread_ = std::this_thread::get_id();
  const pid_t process_;
};

}  // namespace farandole
