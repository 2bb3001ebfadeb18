#include "farandole/base/run/remedies.h"

#include <gmock/gmock.h>
#include <string>
#include <vector>

namespace farandole {
namespace {

using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

ProgramKind kind_by_run_json(const std::string& program) {
  RunFacts facts;
  facts.program = program;
  return kind_of_program(facts, Words{"farandole-train"});
}

TEST(ProgramKind, IsThatOfTheProgram) {
  EXPECT_EQ(kind_by_run_json("farandole train --model mlp"), ProgramKind::train);
  EXPECT_EQ(kind_by_run_json("/opt/bin/farandole-train --model mlp"), ProgramKind::train);
  EXPECT_EQ(kind_by_run_json("farandole fit"), ProgramKind::fit);
  EXPECT_EQ(kind_by_run_json("./cnn train"), ProgramKind::program);
  EXPECT_EQ(kind_by_run_json(""), ProgramKind::program);
  EXPECT_EQ(kind_of_program({}, Words{"/opt/bin/farandole", "train"}), ProgramKind::train);
  EXPECT_EQ(kind_of_program({}, Words{"./farandole-train.sh"}), ProgramKind::program);
  EXPECT_EQ(kind_of_program({}), ProgramKind::program);
  EXPECT_EQ(kind_of_program({}, Words{"./train.py", "10"}), ProgramKind::python);
  EXPECT_EQ(kind_by_run_json("/usr/bin/python3.11 -W ignore train.py"), ProgramKind::python);
}

TEST(Remedy, HasNoOptionsOfTheTrainerForOtherPrograms) {
  for (int topic = 0; topic <= static_cast<int>(Topic::save_before_limit); ++topic) {
    for (const auto kind : {ProgramKind::program, ProgramKind::other})
      EXPECT_THAT(remedy(static_cast<Topic>(topic), kind), Not(HasSubstr("--")));
    EXPECT_THAT(remedy(static_cast<Topic>(topic), ProgramKind::python), Not(HasSubstr("farandole::")));
    for (const char* option : {"--bucket-mb", "--compression", "--data", "--resume", "--stall", "--timeline"})
      EXPECT_THAT(remedy(static_cast<Topic>(topic), ProgramKind::fit), Not(HasSubstr(option)));
  }
  EXPECT_THAT(remedy(Topic::global_batch, ProgramKind::program), HasSubstr("farandole::Run"));
  EXPECT_THAT(remedy(Topic::number_steps, ProgramKind::python), HasSubstr("farandole.record.step"));
  EXPECT_THAT(remedy(Topic::less_memory, ProgramKind::train), HasSubstr("--batch-size,"));
  EXPECT_THAT(remedy(Topic::check_data, ProgramKind::fit), HasSubstr("--table"));
}

}  // namespace
}  // namespace farandole
