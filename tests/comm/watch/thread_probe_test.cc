#include "farandole/comm/watch/thread_probe.h"

#include <csignal>
#include <gmock/gmock.h>
#include <pthread.h>
#include <thread>
#include <unistd.h>
#include <utility>

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
using testing::Contains;
using testing::HasSubstr;

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
  std::atomic<bool> blocked{false};
  Probed probed([&](auto wait) {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    blocked = true;
    wait();
    ::pthread_sigmask(SIG_UNBLOCK, &all, nullptr);
  });
  while (!blocked) std::this_thread::yield();
  EXPECT_FALSE(probed.probe.load()->take(1ms));
  probed.go_on();  // signals of earlier probes that got no answer arrive now
  EXPECT_TRUE(probed.probe.load()->take(20s));
}

}  // namespace
}  // namespace farandole
