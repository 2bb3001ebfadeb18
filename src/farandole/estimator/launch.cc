#include "farandole/estimator/launch.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <ostream>
#include <poll.h>
#include <sys/signalfd.h>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/process/program.h"
#include "farandole/base/text/json.h"
#include "farandole/launch/call_end.h"
#include "farandole/launch/launcher.h"
#include "farandole/launch/process/child_process.h"
#include "farandole/launch/process/machine.h"
#include "farandole/launch/records/rank_record.h"
#include "farandole/launch/records/session_folder.h"
#include "farandole/train/session_internals.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

constexpr const char* call_file = "call";      // From the caller to the ranks.
constexpr const char* result_file = "result";  // From rank 0 to the caller.

const Environment own_environment = [](const char* name) { return std::getenv(name); };

// The program's name in messages: "farandole fit" for farandole-fit, as its user writes it.
std::string own_name() {
  std::string name = fs::read_symlink("/proc/self/exe").filename();
  constexpr std::string_view ours = "farandole-";
  if (name.starts_with(ours)) name[ours.size() - 1] = ' ';
  return name;
}

std::vector<std::string> own_arguments() {
  const auto text = read_whole_file("/proc/self/cmdline").value_or("");
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\0', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (!words.empty()) words.erase(words.begin());
  return words;
}

// Returns the launcher that belongs to this library: beside the library or this program, or else in PATH.
std::string find_launcher() {
  constexpr const char* name = "farandole-run";
  const char* path = std::getenv("PATH");
  std::string folders = program_folder().string();
  if (Dl_info self{}; ::dladdr(reinterpret_cast<void*>(&find_launcher), &self) != 0)
    folders = (fs::path(self.dli_fname).parent_path() / FARANDOLE_BIN_FROM_LIB).string() + ":" + folders;
  if (path != nullptr) folders += std::string(":") + path;
  if (const auto found = find_program(name, folders)) return *found;
  throw UserError(
      "cannot find farandole-run, which starts the ranks; add the folder of Farandole's programs to PATH");
}

// In a Slurm allocation, ranks may run on other hosts. The working folder is the only folder that they
// share with this host for certain.
fs::path parent_of_folder() {
  return in_slurm_job(own_environment) ? fs::current_path() : fs::temp_directory_path();
}

// While it exists, the thread receives these signals through a descriptor.
class SignalsOfJob {
 public:
  SignalsOfJob()
      : descriptor_((::sigprocmask(SIG_SETMASK, nullptr, &before_), signal_descriptor(signals_))) {}
  ~SignalsOfJob() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  int descriptor() const { return descriptor_.get(); }

  // Passes them on. Those from the terminal have reached the launcher already.
  void pass_on(const ChildProcess& launcher) const {
    signalfd_siginfo info;
    while (::read(descriptor_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info))
      if (info.ssi_signo != SIGCHLD && static_cast<int>(info.ssi_code) != SI_KERNEL)
        launcher.signal(static_cast<int>(info.ssi_signo));
  }

 private:
  static inline const std::vector<int> signals_ = {SIGCHLD, SIGTERM, SIGINT, SIGHUP,
                                                   SIGQUIT, SIGUSR1, SIGUSR2};
  sigset_t before_;
  OwnedDescriptor descriptor_;
};

// A stream of the launcher and where it goes.
struct Output {
  explicit Output(std::ostream* to) : stream(to) {
    if (stream == nullptr) return;
    auto pipe = make_pipe();
    from = std::move(pipe.read_end);
    into = std::move(pipe.write_end);
    ::fcntl(from.get(), F_SETFL, O_NONBLOCK);
  }
  void copy() {
    std::array<char, 65536> buffer;
    ssize_t got = -1;
    while (from.get() >= 0 && (got = ::read(from.get(), buffer.data(), buffer.size())) > 0)
      stream->write(buffer.data(), got);
    if (got == 0) from.reset();
    if (stream != nullptr) stream->flush();
  }

  std::ostream* stream;
  OwnedDescriptor from, into;
};

// Returns the exit code of the job.
int run_job(const LaunchOptions& options, const std::vector<std::string>& arguments, const fs::path& folder) {
  const int ranks = options.np == 0 ? -1 : std::abs(options.np);  // -1: all, for farandole run
  std::vector<std::string> command = {find_launcher(), "-n", std::to_string(ranks)};
  if (options.np < 0) command.push_back("--local");
  if (options.np != 0) command.push_back("--oversubscribe");  // The caller has given the number of ranks.
  if (options.prefix_output_with_timestamp) command.push_back("--prefix");
  if (!options.run_dir.empty()) command.insert(command.end(), {"--run-dir", options.run_dir.string()});
  command.insert(command.end(), {"--", fs::read_symlink("/proc/self/exe")});
  command.insert(command.end(), arguments.begin(), arguments.end());

  Output out(options.out), err(options.err);
  const SignalsOfJob signals;
  ChildProcess launcher(command, {-1, out.into.get(), err.into.get()}, SIGTERM,
                        {{launched_by_variable, launched_by(folder)}});
  out.into.reset();
  err.into.reset();
  while (!launcher.has_ended()) {
    std::array<pollfd, 3> waiting = {
        {{signals.descriptor(), POLLIN, 0}, {out.from.get(), POLLIN, 0}, {err.from.get(), POLLIN, 0}}};
    ::poll(waiting.data(), waiting.size(), -1);
    signals.pass_on(launcher);
    out.copy();
    err.copy();
  }
  out.copy();
  err.copy();
  return launcher.end().signal != 0 ? 128 + launcher.end().signal : launcher.end().exit_code;
}

std::string checked_json(const std::string& text, const char* what) {
  if (try_parse_json(text).is_discarded())
    throw UserError(fmt::format("farandole::launch: {} must be JSON, not '{}'", what, text.substr(0, 80)));
  return text;
}

// How the calls of this process have ended: {"result": TEXT}, or {"error": MESSAGE, "code": CODE}. There is
// one list per process, because every rank must number its calls as the calling program does.
std::vector<Json>& ended_calls() {
  static std::vector<Json> calls;
  return calls;
}

std::string keep_end(Json end) {
  const auto& kept = ended_calls().emplace_back(std::move(end));
  if (kept.contains("result")) return kept["result"];
  throw Error(kept.at("error"), static_cast<ExitCode>(kept.at("code").get<int>()));
}

void write_failure(const fs::path& folder, const Session& session, const std::exception& error) {
  if (const auto* agreed = dynamic_cast<const AgreedError*>(&error);
      agreed != nullptr && agreed->first_rank != session.rank())
    return;
  const auto* own = dynamic_cast<const Error*>(&error);
  RankRecord record;
  record.rank = session.rank();
  record.host = session.node();
  record.exit_code = static_cast<int>(own != nullptr ? own->exit_code() : ExitCode::failure);
  record.time_ns = real_time_ns();
  const std::string text = error.what();
  record.last_words = text.substr(0, own != nullptr ? text.size() : text.find('\n'));
  write_record(folder, record);
}

using Function = std::function<std::string(Session&, const std::string&)>;

// The call on a rank that this library has started.
[[noreturn]] void run_on_rank(const fs::path& folder, const Function& function,
                              const std::string& arguments) {
  const int code = run_session(own_name(), 0, nullptr, [&](Session& session) {
    try {
      const auto result = checked_json(function(session, arguments), "the result");
      if (session.rank() == 0) write_file_atomically(folder / result_file, result);
      return 0;
    } catch (const std::exception& error) {
      write_failure(folder, session, error);
      throw;
    }
  });
  std::exit(code);
}

// The call on a rank of a job that something else has started.
std::string run_directly(const Function& function, const std::string& arguments) {
  std::string result, message;
  const int code = run_session(own_name(), 0, nullptr, [&](Session& session) {
    try {
      result = checked_json(function(session, arguments), "the result");
      session.broadcast(result);
      return 0;
    } catch (const std::exception& error) {
      message = error.what();
      throw;
    }
  });
  if (code != 0) throw Error(message, static_cast<ExitCode>(code));
  return result;
}

}  // namespace

bool is_rank() {
  return !folder_of_launch(own_environment).empty() || launched_rank(own_environment).has_value();
}

int launch(int argc, const char* const* argv, const LaunchOptions& options,
           const std::function<int(Session&, const std::vector<std::string>&)>& function) {
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  const auto name = own_name();
  if (is_rank())
    return run_session(name, argc, argv, [&](Session& session) { return function(session, arguments); });
  try {
    const SessionFolder folder(parent_of_folder());
    return run_job(options, arguments, folder.path());
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    return static_cast<int>(error.exit_code());
  }
}

std::string launch(const LaunchOptions& options, const Function& function, const std::string& arguments) {
  if (const auto folder = folder_of_launch(own_environment); !folder.empty()) {
    const auto call = parse_json(read_whole_file(folder / call_file).value_or(""));
    const auto& earlier = call.at("earlier");
    if (const auto number = ended_calls().size(); number < earlier.size()) return keep_end(earlier[number]);
    run_on_rank(folder, function, call.at("arguments").get<std::string>());
  }
  if (is_rank()) return run_directly(function, checked_json(arguments, "the arguments"));
  const Json call = {{"arguments", checked_json(arguments, "the arguments")}, {"earlier", ended_calls()}};
  const SessionFolder folder(parent_of_folder());
  write_file_atomically(folder.path() / call_file, exact_json_text(call));
  const int code = run_job(options, own_arguments(), folder.path());
  const auto result = read_whole_file(folder.path() / result_file);
  if (code == 0 && result) return keep_end({{"result", *result}});
  const auto end = read_call_end(folder.path());
  const bool failed = end && end->exit_code != 0;
  return keep_end({{"error", failed ? end->message : "the ranks ended before the function had returned"},
                   {"code", failed ? end->exit_code : std::max(code, 1)}});
}

}  // namespace farandole
