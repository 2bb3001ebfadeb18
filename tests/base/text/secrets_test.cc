#include "farandole/base/text/secrets.h"

#include <gtest/gtest.h>

namespace farandole {
namespace {

TEST(Secrets, AreNotShown) {
  EXPECT_EQ(without_secrets("train.py --hub-token hf_abc --epochs 3"), "train.py --hub-token *** --epochs 3");
  EXPECT_EQ(without_secrets("train.py --wandb_api_key=1=2 --lr=0.1"),
            "train.py --wandb_api_key=*** --lr=0.1");
  EXPECT_EQ(without_secrets("train.py +logger.api_key=abc"), "train.py +logger.api_key=***");
  EXPECT_EQ(without_secrets("env AWS_SECRET_ACCESS_KEY=a HF_TOKEN=b python3 x.py"),
            "env AWS_SECRET_ACCESS_KEY=*** HF_TOKEN=*** python3 x.py");
  EXPECT_EQ(without_secrets("x -Password a=b --key --token"), "x -Password *** --key --token");
}

TEST(Secrets, LeaveOtherWordsAlone) {
  for (const std::string line :
       {"", " ", "a  b ", "gpt.py --max-tokens 512 --tokenizer bert", "x --keys 3 token", "key", "--key"})
    EXPECT_EQ(without_secrets(line), line);
}

}  // namespace
}  // namespace farandole
