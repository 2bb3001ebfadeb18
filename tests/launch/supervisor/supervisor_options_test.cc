#include <gtest/gtest.h>

#include "farandole/launch/supervisor/supervisor.h"

namespace farandole {
namespace {

TEST(SupervisorOptions, ComeBackFromArguments) {
  SupervisorOptions options;
  options.world_size = 128;
  options.folder = "/tmp/a folder=b";
  options.log_folder = "/tmp/lo\ngs\xff";
  options.mpirun = true;
  options.prefix = true;
  options.run = {"/work/--", true};
  options.launch = "1-2-3";
  options.threads = 7;
  options.trace_mpi = true;
  options.program = {"--supervise", "", "--", "a=b"};
  SupervisorOptions few;
  few.folder = "/x";
  few.program = {"true"};
  for (const auto& given : {options, few}) {
    const auto back = SupervisorOptions::parse(given.to_arguments());
    ASSERT_TRUE(back);
    EXPECT_EQ(back->world_size, given.world_size);
    EXPECT_EQ(back->folder, given.folder);
    EXPECT_EQ(back->mpirun, given.mpirun);
    EXPECT_EQ(back->prefix, given.prefix);
    EXPECT_EQ(back->log_folder, given.log_folder);
    EXPECT_EQ(back->run.folder, given.run.folder);
    EXPECT_EQ(back->run.logged, given.run.logged);
    EXPECT_EQ(back->launch, given.launch);
    EXPECT_EQ(back->threads, given.threads);
    EXPECT_EQ(back->trace_mpi, given.trace_mpi);
    EXPECT_EQ(back->program, given.program);
  }
}

TEST(SupervisorOptions, NothingElseIsTaken) {
  using Words = std::vector<std::string>;
  for (const auto& words : {Words{}, Words{"--supervise"}, Words{"--supervise", "--"},
                            Words{"--supervise", "true"}, Words{"--supervise", "--colour=red", "--", "true"},
                            Words{"--ranks=2", "--", "true"}, Words{"--supervise", "--prefix", "--", "true"}})
    EXPECT_FALSE(SupervisorOptions::parse(words));
}

}  // namespace
}  // namespace farandole
