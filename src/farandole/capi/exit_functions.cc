// How a program that is not in C++ ends, and where it is if it hangs: that part of farandole/capi.h.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/capi.h"
#include "farandole/capi/process_job.h"
#include "farandole/comm/watch/python_stack.h"

namespace farandole::capi {
namespace {

// A guest's program does not wait for a file system that does not answer. What is left is as after a kill.
void close_guest() {
  try {
    std::promise<void> closed;
    auto end = closed.get_future();
    std::thread([closed = std::move(closed)]() mutable {
      fdl_close();
      closed.set_value();
    }).detach();
    end.wait_for(std::chrono::milliseconds(200));
  } catch (const std::system_error&) {  // The process can start no thread.
  }
}

// Only here is the exit code known: Python, for example, does not tell it to anyone before.
void close_with(int code, void*) {
  auto* const own = running();
  if (own == nullptr) return;
  own->exit_code = code;
  if (own->job.is_guest()) return close_guest();
  const bool ends_well = code == 0 || code == static_cast<int>(ExitCode::preempted);
  if (!ends_well && own->job.layout().size > 1)
    fdl_abort(code, fmt::format("the program ended with exit code {}", code).c_str());
  if (fdl_close() != 0) std::fprintf(stderr, "farandole: %s\n", fdl_error());
}

}  // namespace
}  // namespace farandole::capi

using namespace farandole;

int fdl_close_at_exit() {
  return capi::attempt([] {
    capi::need_job().tickets->close();
    static const bool once = ::on_exit(&capi::close_with, nullptr) == 0;
    if (!once) throw Error("on_exit() failed; call fdl_close() before the program ends");
  });
}

int fdl_watch_python(int signal, int file) {
  return capi::attempt([&] { watch_python(signal, file); });
}
