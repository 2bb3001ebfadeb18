// The exceptions that Farandole throws and the exit codes they end a program with.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace farandole {

// Exit codes that batch scripts may rely on.
enum class ExitCode : int {
  done = 0,
  failure = 1,
  user_error = 64,     // wrong option, missing file, wrong setup: do not requeue
  corrupt_input = 65,  // damaged data or no usable checkpoint
  peer_lost = 70,      // another rank was lost, or a stall was aborted
  preempted = 75,      // stopped early after writing a durable checkpoint: requeue
};

// The message is one line. It says what is wrong, where (file, offset, rank, option) and what to do.
class Error : public std::runtime_error {
 public:
  // `system_error`: the errno of the system call that failed; 0: it was none.
  explicit Error(const std::string& message, ExitCode exit_code = ExitCode::failure, int system_error = 0)
      : std::runtime_error(message), exit_code_(exit_code), system_error_(system_error) {}
  ExitCode exit_code() const { return exit_code_; }
  // Whether removing files could help.
  bool lacks_space() const { return system_error_ == ENOSPC || system_error_ == EDQUOT; }

 private:
  ExitCode exit_code_;
  int system_error_;
};

class UserError : public Error {
 public:
  explicit UserError(const std::string& message) : Error(message, ExitCode::user_error) {}
};

class CorruptInput : public Error {
 public:
  explicit CorruptInput(const std::string& message) : Error(message, ExitCode::corrupt_input) {}
};

// Describes the last failed system call with the text of errno, as in system_error("open", path).
inline Error system_error(const std::string& call, const std::string& path) {
  const int error = errno;
  return Error(call + " " + path + ": " + std::strerror(error), ExitCode::failure, error);
}

}  // namespace farandole
