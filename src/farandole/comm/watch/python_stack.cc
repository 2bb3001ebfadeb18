#include "farandole/comm/watch/python_stack.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>

#include "farandole/base/error.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

// Global variables, because a signal handler has no other access to them.
constinit std::atomic<void (*)(int)> python_handler{nullptr};
constinit std::atomic<int> python_signal{0}, python_file{-1};

// Relative to the current folder, and with two folders at most.
std::string short_path(std::string_view path) {
  std::error_code error;
  const auto here = std::filesystem::current_path(error).string() + "/";
  if (path.starts_with(here)) path.remove_prefix(here.size());
  std::size_t from = path.size();
  for (int parts = 0; parts < 3 && from != std::string_view::npos && from > 0; ++parts)
    from = path.rfind('/', from - 1);
  return std::string(from == std::string_view::npos ? path
                                                    : path.substr(from + (from < path.size() ? 1 : 0)));
}

bool is_of_program(std::string_view file) {
  constexpr std::string_view packages[] = {
      "/site-packages/", "/dist-packages/",  "/lib/python3",        "/farandole/python/farandole/",
      "/torch/_",        "/torch/autograd/", "/torch/distributed/", "/torch/nn/",
      "/torch/optim/",   "/torch/utils/"};
  return !file.starts_with("<frozen") &&
         std::none_of(std::begin(packages), std::end(packages),
                      [&](std::string_view folder) { return file.find(folder) != std::string_view::npos; });
}

}  // namespace

std::string PythonFrame::text() const {
  return fmt::format("{} at {}:{}", function, short_path(file), line);
}

std::string PythonFrame::place() const {
  return fmt::format("{}:{} in {}", short_path(file), line, function);
}

void watch_python(int signal, int file) {
  struct sigaction present {};
  if (::sigaction(signal, nullptr, &present) != 0 || (present.sa_flags & SA_SIGINFO) != 0 ||
      present.sa_handler == SIG_DFL || present.sa_handler == SIG_IGN)
    throw UserError(
        fmt::format("signal {} has no handler; call faulthandler.register() for it first", signal));
  if (::ftruncate(file, 0) != 0)
    throw UserError(fmt::format("file {} of faulthandler.register() is not open for writing", file));
  python_signal = signal;
  python_file = file;
  python_handler = present.sa_handler;
}

bool python_is_watched() noexcept {
  return python_handler != nullptr;
}

void empty_python_stack() noexcept {
  if (!python_is_watched()) return;
  if (::ftruncate(python_file, 0) == 0) ::lseek(python_file, 0, SEEK_SET);
}

void write_python_stack() noexcept {
  auto* const handler = python_handler.load();
  // When Python ends, it takes its handler back.
  struct sigaction present;
  if (handler != nullptr && ::sigaction(python_signal, nullptr, &present) == 0 &&
      present.sa_handler == handler)
    handler(python_signal);
}

std::vector<PythonFrame> read_python_stack() {
  if (!python_is_watched()) return {};
  std::string text(1 << 16, '\0');
  const auto length = ::pread(python_file, text.data(), text.size(), 0);
  return parse_python_stack(
      std::string_view(text).substr(0, length > 0 ? static_cast<std::size_t>(length) : 0));
}

// Lines of all versions of Python: `  File "PATH", line 118 in fetch`.
std::vector<PythonFrame> parse_python_stack(std::string_view text) {
  constexpr std::string_view before = "  File \"", between = "\", line ", in = " in ";
  std::vector<PythonFrame> frames;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const auto number_at = line.rfind(between);
    if (!line.starts_with(before) || number_at == std::string_view::npos) continue;
    const auto rest = line.substr(number_at + between.size());
    const auto function_at = rest.find(in);
    const auto number = parse_number<int>(rest.substr(0, function_at));
    if (!number || function_at == std::string_view::npos) continue;
    frames.push_back({std::string(rest.substr(function_at + in.size())),
                      std::string(line.substr(before.size(), number_at - before.size())), *number});
  }
  return frames;
}

std::string place_in_program(const std::vector<PythonFrame>& frames) {
  if (frames.empty()) return "";
  const auto own =
      std::find_if(frames.begin(), frames.end(), [](const auto& one) { return is_of_program(one.file); });
  return (own == frames.end() ? frames.front() : *own).place();
}

}  // namespace farandole
