#include "farandole/comm/watch/thread_probe.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <memory>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "farandole/comm/watch/python_stack.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

namespace {

// The data that the signal handler fills. It is global because the handler can only find it there. A handler
// may run late, after its request was given up.
struct Capture {
  static constexpr std::size_t longest_name = 64;
  static constexpr int most_frames = 50;
  enum State { idle, asked, filling, filled };
  std::atomic<int> state{idle};
  bool in_span = false;
  Category category = Category::other;
  std::int64_t span_start_ns = 0;
  char span_name[longest_name] = {};
  int frame_count = 0;
  void* frames[most_frames] = {};
};
constinit Capture capture;

int free_signal() {
  for (int number = SIGRTMAX - 2; number > SIGRTMIN; --number) {
    struct sigaction present;
    if (::sigaction(number, nullptr, &present) == 0 && (present.sa_flags & SA_SIGINFO) == 0 &&
        present.sa_handler == SIG_DFL)
      return number;
  }
  return 0;
}

std::string file_name(const char* path) {
  const char* const slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

// Below lines of Python, frames of the interpreter and frames without a name tell nothing.
bool tells_nothing(void* address) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr || info.dli_sname == nullptr) return true;
  const auto file = file_name(info.dli_fname);
  return file.starts_with("python") || file.starts_with("libpython");
}

std::string describe_frame(void* address, bool is_return_address) {
  Dl_info info{};
  // A return address may be after the last instruction of its function.
  const auto at = reinterpret_cast<std::uintptr_t>(address) - (is_return_address ? 1 : 0);
  if (::dladdr(reinterpret_cast<void*>(at), &info) == 0 || info.dli_fname == nullptr)
    return fmt::format("{}", address);
  const auto offset_from = [&](const void* base) {
    return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(base);
  };
  const auto file = file_name(info.dli_fname);
  if (info.dli_sname == nullptr) return fmt::format("{}+{:#x}", file, offset_from(info.dli_fbase));
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status), &std::free);
  return fmt::format("{}+{:#x} in {}", status == 0 ? plain.get() : info.dli_sname,
                     offset_from(info.dli_saddr), file);
}

// Runs on the probed thread. Nothing here allocates or locks. Since glibc 2.35, the stack walk finds its
// tables without a lock.
void capture_this_thread(int) {
  const int saved_errno = errno;
  int asked = Capture::asked;
  if (capture.state.compare_exchange_strong(asked, Capture::filling, std::memory_order_acquire)) {
    const Span* const span = current_span.innermost.load(std::memory_order_relaxed);
    capture.in_span = span != nullptr;
    if (span != nullptr) {
      capture.category = span->category();
      capture.span_start_ns = span->start_ns();
      std::size_t length = 0;
      for (; length + 1 < Capture::longest_name && span->name()[length] != '\0'; ++length)
        capture.span_name[length] = span->name()[length];
      capture.span_name[length] = '\0';
    }
    capture.frame_count = ::backtrace(capture.frames, Capture::most_frames);
    write_python_stack();
    capture.state.store(Capture::filled, std::memory_order_release);
  }
  errno = saved_errno;
}

}  // namespace

ThreadProbe::ThreadProbe()
    : thread_(static_cast<pid_t>(::syscall(SYS_gettid))), spans_(current_span), signal_(free_signal()) {
  current_span.watched = true;
  void* frame = nullptr;
  ::backtrace(&frame, 1);  // loads libgcc, which a handler must not do
  if (signal_ == 0) return;
  struct sigaction action {};
  action.sa_handler = &capture_this_thread;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(signal_, &action, nullptr);
}

std::optional<Category> ThreadProbe::category() const {
  if (spans_.innermost.load(std::memory_order_relaxed) == nullptr) return std::nullopt;
  return spans_.category.load(std::memory_order_relaxed);
}

std::optional<ThreadSnapshot> ThreadProbe::take(std::chrono::milliseconds patience) {
  if (signal_ == 0) return std::nullopt;
  empty_python_stack();
  capture.state.store(Capture::asked, std::memory_order_release);
  if (::syscall(SYS_tgkill, ::getpid(), thread_, signal_) != 0) return std::nullopt;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (capture.state.load(std::memory_order_acquire) != Capture::filled) {
    int asked = Capture::asked;
    if (std::chrono::steady_clock::now() > deadline &&
        capture.state.compare_exchange_strong(asked, Capture::idle, std::memory_order_acquire))
      return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ThreadSnapshot snapshot;
  if (capture.in_span) snapshot.span = {capture.category, capture.span_name, capture.span_start_ns};
  const auto python = read_python_stack();
  snapshot.place = place_in_program(python);
  for (const auto& frame : python) snapshot.stack.push_back(frame.text());
  // The handler and the kernel's trampoline come first. The frame after them was interrupted, not called.
  for (int i = 2; i < capture.frame_count; ++i)
    if (python.empty() || !tells_nothing(capture.frames[i]))
      snapshot.stack.push_back(describe_frame(capture.frames[i], i > 2));
  return snapshot;
}

}  // namespace farandole
