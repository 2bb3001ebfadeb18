#include "farandole/trainer/progress.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

namespace farandole {
namespace {

std::string printed(const char* columns, std::int64_t step, std::optional<ModelRate> rate = {}) {
  setenv("FARANDOLE_TERMINAL_COLUMNS", columns, 1);
  testing::internal::CaptureStdout();
  Progress progress(0, 200);
  progress.update({step, 1, 2.5, 1234.4, rate});
  progress.say("epoch 1");
  progress.finish();
  unsetenv("FARANDOLE_TERMINAL_COLUMNS");
  return testing::internal::GetCapturedStdout();
}

TEST(Progress, AFileGetsPlainLines) {
  const auto text = printed("0", 50);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_NE(text.find("step 50/200  epoch 2  loss 2.5000  1234 samples/s  0:0"), std::string::npos) << text;
  EXPECT_NE(text.find("\nepoch 1\n"), std::string::npos) << text;
}

TEST(Progress, ShowsHowFastTheModelIsComputed) {
  EXPECT_NE(printed("0", 50, ModelRate{395.4, 0.3996}).find("1234 samples/s  395 TFLOP/s, MFU 40.0 %  0:0"),
            std::string::npos);
  EXPECT_NE(printed("120", 50, ModelRate{0.0123, {}}).find("1234 samples/s  12.3 GFLOP/s  loss"),
            std::string::npos);
}

TEST(Progress, ATerminalGetsABarThatFits) {
  for (const int columns : {20, 60, 80, 200}) {
    const auto text = printed(std::to_string(columns).c_str(), 50);
    const auto first = text.find("\x1b[K") + 3;
    const auto bar = text.substr(first, text.find('\r', first) - first);
    EXPECT_LE(bar.size(), static_cast<std::size_t>(columns)) << bar;
    if (columns >= 80) {
      EXPECT_NE(bar.find("#."), std::string::npos) << bar;
    }
  }
}

TEST(Progress, NothingIsDividedByZeroSteps) {
  setenv("FARANDOLE_TERMINAL_COLUMNS", "80", 1);
  testing::internal::CaptureStdout();
  Progress progress(5, 0);
  progress.update({5, 0, 0, 0});
  progress.finish();
  unsetenv("FARANDOLE_TERMINAL_COLUMNS");
  EXPECT_NE(testing::internal::GetCapturedStdout().find("5/0"), std::string::npos);
}

}  // namespace
}  // namespace farandole
