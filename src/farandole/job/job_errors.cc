#include "farandole/job/job_errors.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <iostream>
#include <unistd.h>
#include <utility>

#include "farandole/job/job.h"

namespace farandole {
namespace {

// A terminate handler has no other access to them. The thread that ends the job takes `current`.
std::atomic<ErrorExit*> current{nullptr};
std::atomic<bool> ending{false};

std::string name_of(const Job& job, int rank) {
  if (job.layout().size == 1) return "";
  return fmt::format("rank {} on {}: ", rank, job.layout().hosts[static_cast<std::size_t>(rank)]);
}

JobError describe(const std::exception_ptr& error) {
  if (error == nullptr)
    return {"std::terminate() was called without an exception, for example because a thread was not joined"};
  try {
    std::rethrow_exception(error);
  } catch (const AgreedError& agreed) {
    return {agreed.what(), agreed.exit_code(), agreed.first_rank};
  } catch (const Error& own) {
    return {own.what(), own.exit_code()};
  } catch (const std::exception& other) {
    const std::string text = other.what();
    return {text.substr(0, text.find('\n'))};  // LibTorch's errors contain stacks.
  } catch (...) {
    return {"an exception that is no std::exception was thrown"};
  }
}

// One write, so that lines of other ranks come before or after it.
void say(const std::string& line) {
  std::cout.flush();
  std::fflush(stdout);
  std::fputs((line + "\n").c_str(), stderr);
  std::fflush(stderr);
}

bool calls_only_abort(std::terminate_handler handler) {
  return handler == nullptr || handler == &__gnu_cxx::__verbose_terminate_handler || handler == &std::abort;
}

}  // namespace

JobError describe_error(const std::exception_ptr& error, const Job* job) {
  auto described = describe(error);
  if (job != nullptr && job->layout().size == 1) described.first_rank = 0;
  return described;
}

void say_agreed_error(const Job& job, const std::string& program, const JobError& error) {
  const int first = error.first_rank;
  if (job.layout().rank == first)
    say(fmt::format("{}: {}{}", program, first > 0 ? name_of(job, first) : "", error.text));
}

void end_job(Job& job, const std::string& program, const JobError& error) {
  if (job.is_ending(error.code)) {
    say(fmt::format("{}: {}{}", program, name_of(job, job.layout().rank), error.text));
  } else if (error.code != ExitCode::peer_lost) {
    // The rank that says why ends this one. It may not have said it yet.
    std::this_thread::sleep_for(std::chrono::seconds(3));
  }
  job.abort(static_cast<int>(error.code));
}

ErrorExit::ErrorExit() : previous_(std::set_terminate(&on_terminate)), process_(::getpid()) {
  current = this;
  static const bool once = ::on_exit(&ErrorExit::on_exit, nullptr) == 0;
  static_cast<void>(once);
}

ErrorExit::~ErrorExit() {
  current = nullptr;
  if (std::get_terminate() == &on_terminate) std::set_terminate(previous_);
}

void ErrorExit::on_terminate() {
  static thread_local bool again = false;
  if (std::exchange(again, true)) std::abort();
  if (auto* const own = current.load(); own != nullptr && own->process_ != ::getpid()) {
    if (own->previous_ != nullptr) own->previous_();
    std::abort();
  }
  if (auto* const own = current.exchange(nullptr); own != nullptr) {
    ending = true;
    own->terminate(std::current_exception());
  }
  if (!ending) std::abort();
  for (;;) ::pause();  // Another thread ends the process.
}

void ErrorExit::terminate(const std::exception_ptr& exception) {
  constexpr const char* program = "farandole";
  Job* const job = job_;
  const auto error = describe_error(exception, job);
  if (job == nullptr) {
    say(fmt::format("{}: {}", program, error.text));
    std::_Exit(static_cast<int>(error.code));
  }
  if (!calls_only_abort(previous_)) {
    if (job->is_ending(error.code))
      say(fmt::format("{}: {}{}", program, name_of(*job, job->layout().rank), error.text));
    previous_();
    std::abort();
  }
  if (error.first_rank < 0 || std::this_thread::get_id() != training_thread_) end_job(*job, program, error);
  say_agreed_error(*job, program, error);
  job->is_ending(error.code);
  try {
    job->publish_timeline();
    job->communicator().barrier();  // No rank ends before the error was said.
  } catch (const std::exception&) {
    end_job(*job, program, describe_error(std::current_exception(), job));
  }
  std::_Exit(static_cast<int>(error.code));
}

void ErrorExit::on_exit(int code, void*) {
  auto* const own = current.load();
  if (own == nullptr || own->process_ != ::getpid() || current.exchange(nullptr) == nullptr) return;
  ending = true;
  own->exit(code);
}

void ErrorExit::exit(int code) {
  Job* const job = job_;
  if (job == nullptr) return;
  if (job->layout().size > 1)
    end_job(
        *job, "farandole",
        {fmt::format("exit({}) was called inside of the session, and other ranks would wait for this one; "
                     "return from main on all ranks, or throw a farandole::Error",
                     code),
         code == 0 ? ExitCode::user_error : static_cast<ExitCode>(code)});
  try {
    job->publish_timeline();
  } catch (const std::exception& failure) {
    say(fmt::format("farandole: the timeline could not be written: {}", failure.what()));
  }
}

}  // namespace farandole
