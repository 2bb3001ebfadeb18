#include "farandole/base/process/quiet_thread.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <thread>

#include "farandole/base/error.h"

namespace farandole {
namespace {

using namespace std::chrono_literals;

TEST(StopEvent, EndsSleepsBeforeAndMeanwhile) {
  StopEvent event;
  EXPECT_TRUE(event.sleep(0ns));
  EXPECT_TRUE(event.sleep(1us));
  bool slept_through = true;
  std::thread sleeper([&] { slept_through = event.sleep(1h); });
  event.stop();
  sleeper.join();
  EXPECT_FALSE(slept_through);
  event.stop();  // again
  EXPECT_FALSE(event.sleep(1h));
}

// A StopEvent without a descriptor could not wake its thread, and the thread would never end.
TEST(StopEvent, IsNotMadeWithoutADescriptor) {
  EXPECT_THROW(throw system_error("none", "yet"),
               Error);  // for UBSan, which needs descriptors when it first sees a type
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_THROW(StopEvent(), Error);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace farandole
