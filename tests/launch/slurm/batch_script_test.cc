#include "farandole/launch/slurm/batch_script.h"

#include <gmock/gmock.h>

#include "error_message.h"

#include "farandole/base/error.h"

namespace farandole {
namespace {

constexpr const char* small_script =
    "#!/bin/bash\n"
    "# How to use it.\n"
    "#SBATCH --job-name=farandole\n"
    "#SBATCH --nodes=1\n"
    "##SBATCH --time=04:00:00\n"
    "##SBATCH --nodelist=node1\n"
    "trap '' USR1\n"
    "exec farandole train \"$@\"\n";

TEST(BatchScript, HasTheRequestedOptionsOnce) {
  EXPECT_EQ(make_batch_script(small_script, {{{"nodes", "2"}, {"time", "1:00"}},
                                             "/opt/f bin",
                                             "",
                                             {"farandole", "train", "--data", "it's", "--lr=0.1"}}),
            "#!/bin/bash\n"
            "# Written by farandole submit. sbatch with this file submits the same job again.\n"
            "#SBATCH --nodes=2\n"
            "#SBATCH --time=1:00\n"
            "#SBATCH --job-name=farandole\n"
            "##SBATCH --nodelist=node1\n"
            "export FARANDOLE_BIN='/opt/f bin'\n"
            "trap '' USR1\n"
            "exec farandole train --data 'it'\\''s' --lr=0.1\n");
}

TEST(BatchScript, StartsAnyCommandWithARunDirectory) {
  EXPECT_EQ(
      make_batch_script("#!/bin/bash\n"
                        "#SBATCH --nodes=1\n"
                        "#SBATCH --ntasks-per-node=1\n"
                        "requeues=20\n"
                        "scratch=     # auto\n"
                        "exec farandole run --report --requeue \"$requeues\" -- \\\n"
                        "  farandole train ${scratch:+--data-scratch \"$scratch\"} \"$@\"\n",
                        {{{"nodes", "2"}, {"ntasks-per-node", ""}, {"ntasks", "6"}},
                         "/f",
                         "/my runs/a",
                         {"./net", "two words", "$HOME"},
                         {"--trace-torch", "--horovod"}}),
      "#!/bin/bash\n"
      "# Written by farandole submit. sbatch with this file submits the same job again.\n"
      "#SBATCH --nodes=2\n"
      "#SBATCH --ntasks=6\n"
      "requeues=20\n"
      "exec farandole run --trace-torch --horovod --run-dir '/my runs/a' --report --requeue \"$requeues\" -- \\\n"
      "  ./net 'two words' '$HOME'\n");
}

TEST(BatchScript, QuotesWordsForTheShell) {
  EXPECT_EQ(shell_word("/a-b_c.d/e=f,g:h%i@j+k"), "/a-b_c.d/e=f,g:h%i@j+k");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("$HOME"), "'$HOME'");
  EXPECT_EQ(shell_word("ü b"), "'ü b'");
}

TEST(BatchScript, RefusesAScriptThatItDoesNotKnow) {
  EXPECT_THROW(make_batch_script("#!/bin/bash\nexec true\n", {}), Error);
  EXPECT_THROW(make_batch_script("#!/bin/bash\n#SBATCH --nodes=1\ntrue\n", {}), Error);
}

// Slurm would read the rest as an option of its own, and the shell as a command.
TEST(BatchScript, RefusesALineBreakInAnOption) {
  BatchRequest request;
  request.command = {"true"};
  const auto refusal_of = [&] {
    return message_of<UserError>([&] { make_batch_script(small_script, request); });
  };
  for (const auto* value : {"a\n#SBATCH --partition=other", "a\rb", "\x1b[2J"}) {
    request.options = {{"job-name", value}};
    EXPECT_THAT(refusal_of(), testing::HasSubstr("--job-name '"));
  }
  request.options = {{"chdir", "/a folder"}};
  EXPECT_THAT(make_batch_script(small_script, request), testing::HasSubstr("--chdir='/a folder'\n"));
}

}  // namespace
}  // namespace farandole
