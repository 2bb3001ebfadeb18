#include <csignal>
#include <cstdlib>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <optional>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "comm/mpi_world.h"
#include "timeline/gzip/unzipped.h"
#include <nlohmann/json.hpp>

#include "farandole/base/files/staging_file.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/comm/recording/trace_requests.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

// Rank 0's folder, used by all ranks.
class TraceRequestsTest : public testing::Test {
 protected:
  TraceRequestsTest() {
    char path[512] = "";
    if (layout().rank == 0) {
      folder_.emplace();
      folder_->path().string().copy(path, sizeof path - 1);
      fs::create_directories(*folder_ / "node");
    }
    world->new_communicator(Waiting::yielding)->broadcast("folder", path, sizeof path, 0);
    run_ = path;
  }
  ~TraceRequestsTest() override { barrier(); }

  static const RankLayout& layout() { return world->layout(); }
  static void barrier() { world->new_communicator(Waiting::yielding)->barrier("barrier"); }

  void record(bool on_node) {
    TimelineOptions options{.file = run_ / "recorder" / fmt::format("rank-{:04}.ftl", layout().rank),
                            .recorder_bytes = 1 << 20,
                            .rank = layout().rank,
                            .world_size = layout().size,
                            .host = layout().node};
    if (on_node) options.node_folder = run_ / "node";
    timeline_ = std::make_unique<Timeline>(options);
    timeline_->name_thread("training");
    requests_ = std::make_unique<TraceRequests>(world->control(), layout(), asked_, *timeline_,
                                                TraceRequestOptions{run_, 64});
  }
  void add(const char* name) { const Span span(*timeline_, Category::forward, name); }
  void end() {
    requests_.reset();
    timeline_.reset();
  }

  // The ranks in the trace that have this span. Waits for a trace in which `ranks` ranks have it.
  std::set<int> ranks_with(const std::string& name, std::size_t ranks) const {
    std::set<int> found;
    // Bounds a hang only: on a machine with other work, the merging thread has to wait for a core.
    ino_t read = 0;  // the time of a change is too coarse: two traces may follow each other within it
    for (int look = 0; look < 200'000 && found.size() < ranks; ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      struct stat status {};
      if (::stat((run_ / "timeline.json.gz").c_str(), &status) != 0 || status.st_ino == read) continue;
      read = status.st_ino;
      found.clear();
      const auto trace = nlohmann::json::parse(unzipped(run_ / "timeline.json.gz"));
      for (const auto& event : trace["traceEvents"])
        if (event["ph"] == "X" && event["name"] == name) found.insert(event["pid"].get<int>() - 1);
    }
    return found;
  }

  SignalEvent asked_{SIGUSR2, SignalEvent::Afterwards::ignored};
  fs::path run_;
  std::unique_ptr<Timeline> timeline_;
  std::unique_ptr<TraceRequests> requests_;

 private:
  std::optional<TemporaryFolder> folder_;
};

TEST_F(TraceRequestsTest, AnyRankOrAllMayBeAskedAgainAndAgain) {
  for (const bool on_node : {false, true}) {
    record(on_node);
    const auto all = static_cast<std::size_t>(layout().size);
    const char* names[] = {"first", "second", "third"};
    for (int round = 0; round < 3; ++round) {
      add(names[round]);
      barrier();
      const int asked = round == 0 ? 0 : round == 1 ? layout().size - 1 : layout().rank;
      if (layout().rank == asked) ::kill(::getpid(), SIGUSR2);
      EXPECT_EQ(ranks_with(names[round], all).size(), all) << names[round];
      barrier();
    }
    end();
    barrier();
    if (layout().rank == 0) {
      EXPECT_TRUE(fs::is_empty(run_ / "node"));
      std::error_code failure;
      EXPECT_EQ(staged_files_in(run_ / "recorder", ".ftl", failure).size(), all);
      fs::remove(run_ / "timeline.json.gz");
    }
    barrier();
  }
}

// A rank that ends before others have finished a request must not delay them.
TEST_F(TraceRequestsTest, EndsWhileSomebodyAsks) {
  record(false);
  add("only");
  ::kill(::getpid(), SIGUSR2);
  end();
  barrier();
}

}  // namespace
}  // namespace farandole
