#include "farandole/launch/process/command_output.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "farandole/base/error.h"
#include "farandole/launch/process/child_process.h"

namespace farandole {

std::optional<CommandEnd> run_command(const std::vector<std::string>& command,
                                      std::chrono::milliseconds patience) try {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t most = 1 << 20;
  const auto deadline = Clock::now() + patience;
  const OwnedDescriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Pipe pipe = make_pipe();
  ChildProcess child(command, {nothing.get(), pipe.write_end.get(), pipe.write_end.get()}, SIGKILL);
  pipe.write_end.reset();
  std::string text;
  for (bool open = true; open || !child.has_ended();) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return std::nullopt;
    // A program that has closed its output usually ends soon, but no event reports its end.
    pollfd waiting{open ? pipe.read_end.get() : -1, POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(open ? left : std::min<std::int64_t>(left, 5))) <= 0) continue;
    std::array<char, 4096> buffer;
    const auto got = ::read(pipe.read_end.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    open = got > 0;
    if (open) text.append(buffer.data(), std::min(static_cast<std::size_t>(got), most - text.size()));
  }
  if (child.end().signal != 0) return std::nullopt;
  return CommandEnd{child.end().exit_code, text};
} catch (const Error&) {
  return std::nullopt;
}

std::optional<std::string> output_of(const std::vector<std::string>& command,
                                     std::chrono::milliseconds patience) {
  auto end = run_command(command, patience);
  if (!end || end->exit_code != 0) return std::nullopt;
  return std::move(end->text);
}

}  // namespace farandole
