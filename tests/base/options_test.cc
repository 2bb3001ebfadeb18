#include "farandole/base/options.h"

#include <fstream>
#include <gmock/gmock.h>
#include <stdlib.h>

#include "error_message.h"

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

namespace po = boost::program_options;
using namespace ::testing;

struct Values {
  int batch = 0, seed = 0;
  std::string model;
  std::string word;
  std::vector<std::string> names, pairs;
  bool fast = false;
};

class Options : public testing::Test {
 protected:
  void profile(const std::string& name, const std::string& text) { std::ofstream(profiles_ / name) << text; }

  Values parse(std::vector<const char*> arguments) {
    Values values;
    OptionParser parser{.usage = "test", .profiles = profiles_};
    parser.visible.add_options()("batch", po::value(&values.batch)->default_value(32), "samples a rank")(
        "model", po::value(&values.model)->default_value("mlp"), "model")(
        "fast", po::bool_switch(&values.fast), "")("word", po::value(&values.word), "bare word")(
        "name", po::value(&values.names), "a list")("pairs", po::value(&values.pairs)->multitoken(),
                                                    "a list");
    parser.more.add_options()("seed", po::value(&values.seed), "rarely needed");
    parser.replaced = {{"samples", "batch"}};
    parser.synonyms = {{"minibatch", "batch"}, {"nb", "batch"}};
    parser.positional.add("word", 1);
    arguments.insert(arguments.begin(), "program");
    parser.foreign = foreign_;
    parsed_ = parser.parse(static_cast<int>(arguments.size()), arguments.data());
    origins_ = parser.origins;
    return values;
  }

  std::string refusal_of(const std::vector<const char*>& arguments) {
    return message_of<UserError>([&] { parse(arguments); });
  }

  const TemporaryFolder folder_;
  const std::filesystem::path profiles_ = folder_.path();
  std::optional<std::vector<std::string>> foreign_ = std::vector<std::string>();
  std::map<std::string, std::string> origins_;
  bool parsed_ = false;
};

class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST_F(Options, EachLayerOverrulesTheOneBelow) {
  EXPECT_EQ(parse({}).batch, 32);
  profile("farandole.ini", "batch = 1\nmodel = site\nname = s\n");
  profile("small.ini", "# comment\nbatch = 2\nmodel = small\n");
  const Variable site("FARANDOLE_PROFILE_PATH", profiles_);
  EXPECT_EQ(parse({}).batch, 1);
  EXPECT_EQ(origins_.at("batch"), (profiles_ / "farandole.ini").string() + ":1");
  EXPECT_EQ(parse({"--profile", "small"}).batch, 2);
  EXPECT_EQ(origins_.at("batch"), (profiles_ / "small.ini").string() + ":2");
  EXPECT_EQ(parse({"--profile", (profiles_ / "small.ini").c_str()}).batch, 2);
  EXPECT_THAT(parse({"--profile", "small"}).names, ElementsAre("s"));
  const Variable batch("FARANDOLE_BATCH", "3");
  EXPECT_EQ(parse({"--profile", "small"}).batch, 3);
  EXPECT_EQ(origins_.at("batch"), "FARANDOLE_BATCH");
  EXPECT_EQ(parse({"--profile", "small", "--set", "batch=4"}).batch, 4);
  EXPECT_EQ(origins_.at("batch"), "--set");
  EXPECT_EQ(parse({"--set", "model=a=b"}).model, "a=b");
  EXPECT_EQ(parse({"--set", "batch=4", "--profile", "small", "--batch", "5"}).batch, 5);
  EXPECT_EQ(origins_.at("batch"), "--batch");
  EXPECT_EQ(parse({}).model, "site");
  EXPECT_EQ(origins_.count("fast"), 0u) << "a default has no origin";
  const Variable named("FARANDOLE_PROFILE", "small");
  EXPECT_EQ(parse({}).model, "small");
}

TEST_F(Options, RefusalsOfLayersNameThem) {
  profile("site.ini", "batch = 1\nmodle = x\n");
  const Variable site("FARANDOLE_PROFILE_PATH", profiles_ / "site.ini");
  EXPECT_THAT(refusal_of({}), HasSubstr("site.ini:2: unknown option modle; did you mean model?"));
  // In a folder that exists, and in one that does not.
  for (const auto& path : {profiles_ / "absent.ini", profiles_ / "absent", profiles_ / "no" / "folder"}) {
    const Variable absent("FARANDOLE_PROFILE_PATH", path);
    EXPECT_EQ(refusal_of({}), "FARANDOLE_PROFILE_PATH is " + path.string() +
                                  ", which does not exist; name a profile, or a folder of profiles");
  }
  const Variable none("FARANDOLE_PROFILE_PATH", profiles_);
  const Variable batch("FARANDOLE_BATCH", "many");
  EXPECT_THAT(refusal_of({}), HasSubstr("FARANDOLE_BATCH: "));
}

TEST_F(Options, AnUnknownProfileIsNamedWithThoseThatThereAre) {
  EXPECT_EQ(refusal_of({"--profile", "mnist"}), "no profile 'mnist' (there are no profiles in " +
                                                    profiles_.string() +
                                                    "; a path of a file is also possible)");
  profile("large.ini", "batch = 9\n");
  profile("small.ini", "batch = 1\n");
  EXPECT_EQ(refusal_of({"--profile", "smal"}), "no profile 'smal'; did you mean small? (the profiles in " +
                                                   profiles_.string() +
                                                   " are large, small; a path of a file is also possible)");
}

TEST_F(Options, ProfilesMayServeSeveralPrograms) {
  profile("both.ini", "batch = 2\npartition = gpu\n");
  EXPECT_THAT(refusal_of({"--profile", "both"}), HasSubstr("both.ini:2: unknown option partition"));
  foreign_->push_back("partition");
  EXPECT_EQ(parse({"--profile", "both"}).batch, 2);
  foreign_.reset();
  EXPECT_EQ(parse({"--profile", "both"}).batch, 2);
}

TEST_F(Options, OfAnOptionGivenTwiceTheLastCounts) {
  profile("small.ini", "batch = 1\nmodel = cnn\n");
  profile("large.ini", "batch = 9\n");
  EXPECT_EQ(parse({"--batch", "1", "--batch", "2"}).batch, 2);
  EXPECT_EQ(parse({"--batch=5", "--model", "a", "--batch=6", "--model", "b"}).model, "b");
  EXPECT_EQ(parse({"--batch", "many", "--batch", "2"}).batch, 2);
  EXPECT_THAT(refusal_of({"--batch", "2", "--batch", "many"}), HasSubstr("batch"));
  EXPECT_EQ(parse({"--set", "batch=2", "--profile", "small", "--set", "batch=7"}).batch, 7);
  EXPECT_THAT(refusal_of({"--set", "batch=2", "--set", "batch=many"}), HasSubstr("--set batch=many: "));
  const auto profiles = parse({"--profile", "small", "--profile", "large"});
  EXPECT_EQ(profiles.batch, 9);
  EXPECT_EQ(profiles.model, "cnn");
  EXPECT_TRUE(parse({"--fast", "--fast"}).fast);
  EXPECT_EQ(parse({"hello", "--word", "world"}).word, "world");
}

TEST_F(Options, ListsCollect) {
  const auto values =
      parse({"--name", "a", "--pairs", "1", "2", "--batch", "1", "--name", "b", "--pairs", "3"});
  EXPECT_THAT(values.names, ElementsAre("a", "b"));
  EXPECT_THAT(values.pairs, ElementsAre("1", "2", "3"));
}

TEST_F(Options, PositionalWordsAndSwitches) {
  const auto values = parse({"hello", "--fast"});
  EXPECT_EQ(values.word, "hello");
  EXPECT_TRUE(values.fast);
  EXPECT_NE(refusal_of({"hello", "again"}), "");
}

TEST_F(Options, HelpIsNoParse) {
  testing::internal::CaptureStdout();
  parse({"--help"});
  EXPECT_FALSE(parsed_);
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("--batch"), HasSubstr("--profile"), HasSubstr("--help all"),
                    testing::Not(HasSubstr("--seed"))));
}

TEST_F(Options, HelpAllShowsTheOptionsThatFewNeed) {
  testing::internal::CaptureStdout();
  parse({"--help", "all"});
  EXPECT_FALSE(parsed_);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), AllOf(HasSubstr("--batch"), HasSubstr("--seed")));
  profile("seed.ini", "seed = 5\n");
  EXPECT_EQ(parse({"--profile", "seed"}).seed, 5);
  EXPECT_EQ(parse({"--seed", "7"}).seed, 7);
}

TEST_F(Options, OfEarlierVersionsAreRefusedWithWhatToWriteInstead) {
  EXPECT_EQ(refusal_of({"--samples", "1"}), "--samples does not exist any more; use --batch");
  EXPECT_EQ(refusal_of({"--set", "samples=1"}),
            "--set samples=1: samples does not exist any more; use batch");
  profile("old.ini", "batch = 1\nsamples = 1\n");
  EXPECT_THAT(refusal_of({"--profile", "old"}),
              HasSubstr("old.ini:2: samples does not exist any more; use batch"));
}

TEST_F(Options, SynonymsStandForTheOptionInEveryPlace) {
  EXPECT_EQ(parse({"--minibatch", "2"}).batch, 2);
  EXPECT_EQ(origins_.at("batch"), "--batch");
  EXPECT_EQ(parse({"--minibatch=3"}).batch, 3);
  EXPECT_EQ(parse({"-nb", "4"}).batch, 4);
  EXPECT_EQ(parse({"--batch", "1", "--minibatch", "5"}).batch, 5) << "the last one counts";
  EXPECT_EQ(parse({"--set", "minibatch=6"}).batch, 6);
  profile("old.ini", "minibatch = 7\n");
  EXPECT_EQ(parse({"--profile", "old"}).batch, 7);
  EXPECT_EQ(origins_.at("batch"), (profiles_ / "old.ini").string() + ":1");
  profile("both.ini", "minibatch = 7\nbatch = 8\n");
  EXPECT_THAT(refusal_of({"--profile", "both"}), HasSubstr("both.ini:2: batch is given twice"));
  const Variable old("FARANDOLE_MINIBATCH", "8");
  EXPECT_EQ(parse({"--profile", "old"}).batch, 8);
  EXPECT_EQ(parse({"--", "--minibatch"}).word, "--minibatch");
}

TEST(OwnArguments, EndBeforeTheOtherProgram) {
  int ranks = 0;
  bool local = false;
  OptionParser parser;
  parser.visible.add_options()("ranks,n", po::value(&ranks), "")("local", po::bool_switch(&local), "");
  parser.synonyms = {{"np", "ranks"}};
  const auto own = [&](std::vector<const char*> words) {
    words.insert(words.begin(), "program");
    return parser.own_arguments(static_cast<int>(words.size()), words.data());
  };
  EXPECT_EQ(own({}), 1);
  EXPECT_EQ(own({"-n", "2", "other", "-n", "3"}), 3);
  EXPECT_EQ(own({"-n2", "other"}), 2);
  EXPECT_EQ(own({"-np", "2", "other"}), 3);
  EXPECT_EQ(own({"--ranks", "2", "--local", "other"}), 4);
  EXPECT_EQ(own({"--ranks=2", "other"}), 2);
  EXPECT_EQ(own({"--local", "--", "other"}), 2);
  EXPECT_EQ(own({"--ranks", "--", "other"}), 2);
  EXPECT_EQ(own({"--ranks"}), 2);
}

TEST_F(Options, RefusalsNameTheOptionAndTheNearest) {
  EXPECT_THAT(refusal_of({"--batc", "1"}), HasSubstr("--batc; did you mean --batch?"));
  EXPECT_THAT(refusal_of({"--zzzzzzz", "1"}), HasSubstr("--help"));
  EXPECT_THAT(refusal_of({"--batch", "many"}), HasSubstr("batch"));
  EXPECT_THAT(refusal_of({"--batch"}), HasSubstr("batch"));
  EXPECT_THAT(refusal_of({"--set", "batch"}), HasSubstr("--set name=value"));
  EXPECT_THAT(refusal_of({"--set", "bathc=1"}), AllOf(HasSubstr("--set bathc=1"), HasSubstr("batch")));
}

TEST_F(Options, RefusalsOfProfilesNameFileAndLine) {
  profile("small.ini", "batch = 1\n\nmodle = cnn\n");
  EXPECT_THAT(refusal_of({"--profile", "small"}),
              AllOf(HasSubstr("small.ini:3: "), HasSubstr("did you mean model?")));
  profile("twice.ini", "batch = 1\nbatch = 2\n");
  EXPECT_THAT(refusal_of({"--profile", "twice"}), AllOf(HasSubstr("twice.ini:2: "), HasSubstr("twice")));
  profile("bad.ini", "batch\n");
  EXPECT_THAT(refusal_of({"--profile", "bad"}), HasSubstr("bad.ini:1: "));
  profile("value.ini", "batch = many\n");
  EXPECT_THAT(refusal_of({"--profile", "value"}), HasSubstr("value.ini:1: "));
  EXPECT_THAT(refusal_of({"--profile", "smal"}),
              AllOf(HasSubstr("'smal'"), HasSubstr("did you mean small?")));
}

TEST(Formats, ThatAreUnknownAreRefusedWithTheKnownOnes) {
  const auto refusal = [](const std::string& format, const std::vector<std::string>& known) {
    return message_of<UserError>([&] { check_format(format, known); });
  };
  check_format("json", {"text", "json"});
  EXPECT_EQ(refusal("xml", {"text", "json"}), "--format cannot be 'xml'; use text or json");
  EXPECT_EQ(refusal("", {"text", "json", "csv"}), "--format cannot be ''; use text, json or csv");
}

TEST(NearestName, MeansWhatIsNear) {
  const std::vector<std::string> names = {"list", "show", "verify"};
  EXPECT_EQ(nearest_name("lsit", names), "list");
  EXPECT_EQ(nearest_name("ver", names), "verify");
  EXPECT_EQ(nearest_name("verifyy", names), "verify");
  EXPECT_EQ(nearest_name("quantum", names), "");
  EXPECT_EQ(nearest_name("x", {}), "");
}

}  // namespace
}  // namespace farandole
