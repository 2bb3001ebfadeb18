#include "farandole/comm/watch/thread_probe.h"

#include <csignal>
#include <gmock/gmock.h>
#include <optional>
#include <pthread.h>
#include <string_view>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "error_message.h"

#include "farandole/base/error.h"
#include "farandole/comm/watch/python_stack.h"
#include "farandole/comm/watch/self_watch.h"
#include "farandole/launch/process/child_process.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

// Exported, so that the stack can contain its name.
__attribute__((noinline, visibility("default"))) ssize_t wait_for_a_byte_of_the_test(int fd) {
  char byte = 0;
  const ssize_t got = ::read(fd, &byte, 1);
  asm volatile("");  // no tail call
  return got;
}

namespace {

using namespace std::chrono_literals;
using namespace ::testing;

// Runs `body` on a thread that is probed while it reads from a pipe. Then lets the thread continue.
struct Probed {
  template <class Body>
  explicit Probed(Body body)
      : thread([this, body] {
          ThreadProbe mine;
          probe = &mine;
          body([this] { return wait_for_a_byte_of_the_test(pipe.read_end.get()); });
          char byte = 0;
          while (::read(finish.read_end.get(), &byte, 1) != 1) {
          }
        }) {
    while (probe == nullptr) std::this_thread::yield();
  }
  ~Probed() {
    go_on();
    EXPECT_EQ(::write(finish.write_end.get(), "x", 1), 1);
    thread.join();
  }
  void go_on() {
    if (std::exchange(gone_on, true)) return;
    EXPECT_EQ(::write(pipe.write_end.get(), "x", 1), 1);
  }
  template <class Ready>
  ThreadSnapshot take_when(Ready ready) {
    for (;;) {
      auto snapshot = probe.load()->take(20s);
      if (snapshot && ready(*snapshot)) return *snapshot;
    }
  }

  Pipe pipe = make_pipe(), finish = make_pipe();
  std::atomic<ThreadProbe*> probe{nullptr};
  bool gone_on = false;
  std::thread thread;
};

// A thread that answers no signal before go_on().
struct Unanswering {
  Unanswering() {
    while (!blocked) std::this_thread::yield();
  }
  std::atomic<bool> blocked{false};
  Probed probed{[this](auto wait) {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    blocked = true;
    wait();
    ::pthread_sigmask(SIG_UNBLOCK, &all, nullptr);
  }};
};

bool has_frame(const ThreadSnapshot& snapshot, const std::string& text) {
  for (const auto& frame : snapshot.stack)
    if (frame.find(text) != std::string::npos) return true;
  return false;
}

TEST(ThreadProbe, ShowsSpansAndStackWithoutDisturbing) {
  std::atomic<ssize_t> got{-2};
  Timeline off;
  Probed probed([&](auto wait) {
    const Span step(off, Category::step, "step");
    const Span load(off, Category::data, "load a batch");
    got = wait();
  });
  const auto snapshot = probed.take_when([](const auto& one) { return has_frame(one, "read"); });
  ASSERT_TRUE(snapshot.span);
  EXPECT_EQ(snapshot.span->category, Category::data);
  EXPECT_EQ(snapshot.span->name, "load a batch");
  EXPECT_THAT(snapshot.stack, Contains(HasSubstr("wait_for_a_byte_of_the_test")));
  EXPECT_EQ(probed.probe.load()->category(), Category::data);
  EXPECT_EQ(got, -2) << "read() was restarted";
  probed.go_on();
  while (got == -2) std::this_thread::yield();
  EXPECT_EQ(got, 1);
}

TEST(ThreadProbe, ForgetsSpansThatEnded) {
  Timeline off;
  Probed probed([&](auto wait) {
    { const Span span(off, Category::data, "load"); }
    {
      const Span span(off, Category::checkpoint, "save");
      { const Span inner(off, Category::evaluation, "evaluate"); }
      wait();
    }
  });
  const auto snapshot =
      probed.take_when([](const auto& one) { return has_frame(one, "wait_for_a_byte_of_the_test"); });
  ASSERT_TRUE(snapshot.span);
  EXPECT_EQ(snapshot.span->name, "save");
  EXPECT_EQ(probed.probe.load()->category(), Category::checkpoint);
  probed.go_on();
  EXPECT_FALSE(probed.take_when([](const auto& one) { return !one.span; }).span);
  EXPECT_FALSE(probed.probe.load()->category());
}

TEST(ThreadProbe, GivesUpOnAThreadThatDoesNotAnswer) {
  Unanswering thread;
  auto& probed = thread.probed;
  EXPECT_FALSE(probed.probe.load()->take(1ms));
  probed.go_on();  // signals of earlier probes that got no answer arrive now
  EXPECT_TRUE(probed.probe.load()->take(20s));
}

TEST(SelfWatch, ReportsOnceMoreWhenTheThreadAnswers) {
  Unanswering thread;
  auto& probed = thread.probed;
  const CollectiveRegistry calls;
  SelfWatch self(0, calls, *probed.probe);
  EXPECT_THAT(self.report("vm", std::nullopt), HasSubstr("the training thread does not answer"));
  EXPECT_EQ(self.report_news("vm", std::nullopt), std::nullopt);
  probed.go_on();
  std::optional<std::string> news;
  while (!news) news = self.report_news("vm", std::nullopt);
  EXPECT_THAT(*news, HasSubstr("the training thread's stack:"));
  EXPECT_EQ(self.report_news("vm", std::nullopt), std::nullopt) << "it says the same";
}

// Writes what Python's faulthandler writes, in the same way. The file stays open, as Python's does.
struct PretendedPython {
  static constexpr int signal = 40;
  static inline int file = -1;
  PretendedPython() {
    if (file < 0) file = ::memfd_create("python", MFD_CLOEXEC);
    std::signal(signal, [](int) {
      for (const std::string_view text :
           {"Stack (most recent call first):\n",
            "  File \"/usr/lib/python3.11/threading.py\", line 320 in wait\n",
            "  File \"/home/a user/job/data, line 7/loader.py\"", ", line 118 in fetch\n",
            "  File \"<string>\", line 2 in <module>\n"})
        EXPECT_EQ(::write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    });
    watch_python(signal, file);
  }
  ~PretendedPython() { std::signal(signal, SIG_DFL); }
};

TEST(ThreadProbe, ShowsTheLinesOfPythonFirst) {
  std::optional<PretendedPython> python(std::in_place);
  Probed probed([&](auto wait) { wait(); });
  for (int again = 0; again < 2; ++again) {
    const auto snapshot = probed.take_when([](const auto& one) { return has_frame(one, "read"); });
    EXPECT_EQ(snapshot.place, "job/data, line 7/loader.py:118 in fetch");
    ASSERT_GT(snapshot.stack.size(), 4u);
    EXPECT_EQ(snapshot.stack[0], "wait at lib/python3.11/threading.py:320");
    EXPECT_EQ(snapshot.stack[1], "fetch at job/data, line 7/loader.py:118");
    EXPECT_EQ(snapshot.stack[2], "<module> at <string>:2");
    EXPECT_THAT(snapshot.stack[3], HasSubstr(" in "));
  }
  python.reset();  // Python has ended
  const auto snapshot = probed.take_when([](const auto& one) { return has_frame(one, "read"); });
  EXPECT_EQ(snapshot.place, "");
  EXPECT_THAT(snapshot.stack.front(), Not(HasSubstr("threading.py")));
}

TEST(PythonStack, NeedsAHandlerAndAFile) {
  const auto message = [](int signal, int file) {
    return message_of<UserError>([=] { watch_python(signal, file); });
  };
  EXPECT_THAT(message(41, STDOUT_FILENO), HasSubstr("signal 41 has no handler"));
  std::signal(41, [](int) {});
  EXPECT_THAT(message(41, -1), HasSubstr("file -1"));
  std::signal(41, SIG_DFL);
}

TEST(PythonStack, NamesTheInnermostLineOfTheProgram) {
  const auto place = [](std::string text) { return place_in_program(parse_python_stack(text)); };
  const std::string inner =
      "Current thread 0x00007f (most recent call first):\n"
      "  File \"/opt/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py\", line 1 in _get_data\n"
      "  File \"/src/farandole/python/farandole/record.py\", line 2 in next\n"
      "  File \"<frozen runpy>\", line 3 in run\n  ...\n";
  EXPECT_EQ(place(inner + "  File \"train.py\", line 40 in <lambda>\n  File \"train.py\", line 50 in main\n"),
            "train.py:40 in <lambda>");
  EXPECT_EQ(place(inner), "utils/data/dataloader.py:1 in _get_data");
  EXPECT_EQ(place("Stack (most recent call first):\n  <no Python frame>\n"), "");
  EXPECT_EQ(place("  File \"a.py\", line x in f\n  File \"a.py\", line 3 in f"), "a.py:3 in f");
}

}  // namespace
}  // namespace farandole
