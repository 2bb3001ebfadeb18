// Records a program that has no session, from its MPI_Init to its MPI_Finalize. The thread that calls these
// functions starts and ends the recording. A session starts MPI with PMPI_Init and sends the calls to its own
// timeline; then this file does nothing.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <mpi.h>
#include <string_view>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/run/earlier_starts.h"
#include "farandole/base/run/run_files.h"
#include "farandole/base/version.h"
#include "farandole/comm/job/world.h"
#include "farandole/comm/recording/recording.h"
#include "farandole/pmpi/recorded_call.h"
#include "farandole/timeline/counters/gpu_counters.h"
#include "farandole/timeline/recorder/recorder_cut.h"
#include "farandole/timeline/recorder/recorder_place.h"
#include "farandole/timeline/run_timeline.h"

namespace farandole::pmpi {
namespace {

// The ranks of this rank's node.
class NodeRanks {
 public:
  NodeRanks() { PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm_); }
  ~NodeRanks() { PMPI_Comm_free(&comm_); }
  NodeRanks(const NodeRanks&) = delete;
  NodeRanks& operator=(const NodeRanks&) = delete;

  std::size_t count() const {
    int size = 1;
    PMPI_Comm_size(comm_, &size);
    return static_cast<std::size_t>(size);
  }
  int rank() const {
    int rank = 0;
    PMPI_Comm_rank(comm_, &rank);
    return rank;
  }
  void meet() const { PMPI_Barrier(comm_); }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

struct OwnRecording {
  OwnRecording(std::unique_ptr<Timeline> of_calls, const std::filesystem::path& run_dir)
      : timeline(std::move(of_calls)),
        recording(world.layout().size > 1 ? world.new_channel() : nullptr, *timeline,
                  {.run_dir = run_dir,
                   .gpu = gpu_of_rank(NodeRanks().rank(), std::getenv("CUDA_VISIBLE_DEVICES"))}) {
    timeline->set_metadata("farandole", version());
    timeline->set_metadata("mpi", World::library_version());
  }

  World world;
  std::unique_ptr<Timeline> timeline;
  Recording recording;
};

// A global variable, because MPI_Init and MPI_Finalize have no other place for an object that lives between
// them. If a program exits without MPI_Finalize, the object is not destroyed: threads of the program may
// still run, a forked child has none of our threads, and the recorder's file already contains everything.
OwnRecording*& own_recording() {
  static OwnRecording* recording = nullptr;
  return recording;
}

void tell(const std::exception& error) {
  std::fprintf(stderr, "farandole: the program's MPI calls are not recorded: %s\n", error.what());
}

TimelineOptions options_in(const std::filesystem::path& run_dir) {
  int rank = 0, size = 1;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  return run_timeline(run_dir, rank, size);
}

// If the library is preloaded into a program with another MPI, the program's handles have no
// meaning for this one.
bool is_this_mpi() {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  PMPI_Get_library_version(version, &length);
  return std::string_view(version).starts_with("Open MPI");
}

// Every rank takes part.
void keep_earlier_start_of(const std::filesystem::path& run_dir, int rank, int size, bool leads_node) {
  const auto attempt = [](const auto& work) {
    try {
      work();
    } catch (const std::exception& error) {
      tell(error);
    }
    PMPI_Barrier(MPI_COMM_WORLD);
  };
  attempt([&] {
    if (leads_node) stage_out_all(run_dir / "recorder", ".ftl");
    cut_recorders(run_dir, rank, size);
  });
  attempt([&] {
    if (rank == 0) keep_earlier_start(run_dir);
  });
}

void place(TimelineOptions& options, const std::filesystem::path& run_dir) {
  const NodeRanks here;
  keep_earlier_start_of(run_dir, options.rank, options.world_size, here.rank() == 0);
  try {
    const auto found = place_recorder(run_dir, wished_place(), options.recorder_bytes * here.count());
    options.node_folder = found.folder;
    options.node_folder_chosen = found.chosen;
  } catch (const std::exception& error) {
    tell(error);
    options.file.clear();
  }
  here.meet();  // before the first rank allocates its file
}

// Ranks that cannot record because a folder or disk space is missing print a message. They still
// meet the others.
std::unique_ptr<Timeline> timeline_in(const std::filesystem::path& run_dir) {
  auto options = options_in(run_dir);
  place(options, run_dir);
  try {
    return std::make_unique<Timeline>(options);
  } catch (const std::exception& error) {
    tell(error);
    options.file.clear();
    return std::make_unique<Timeline>(options);
  }
}

void start(const char* name, std::int64_t start_ns) try {
  const std::int64_t end_ns = now_ns();
  const auto run_dir = run_dir_of_environment();
  if (run_dir.empty()) return;
  if (!is_this_mpi()) return tell(Error("the program uses another MPI library than Open MPI"));
  auto& own = own_recording();
  own = new OwnRecording(timeline_in(run_dir), run_dir);
  own->timeline->span(Category::other, name, start_ns, end_ns);
} catch (const std::exception& error) {
  // The other ranks wait for this rank, and the program could not know the reason.
  tell(error);
  PMPI_Abort(MPI_COMM_WORLD, static_cast<int>(ExitCode::failure));
}

// The wait for the last rank is measured here, because after MPI_Finalize nothing can be recorded.
void finish() {
  auto& own = own_recording();
  if (own == nullptr) return;
  {
    RecordedCall finalize(Category::other, "MPI_Finalize");
    PMPI_Barrier(MPI_COMM_WORLD);
    if (finalize.begun()) finalize.end({});
  }
  try {
    own->recording.close();
  } catch (const std::exception& error) {
    tell(error);
  }
  delete std::exchange(own, nullptr);
}

}  // namespace
}  // namespace farandole::pmpi

extern "C" int MPI_Init(int* argc, char*** argv) {
  const auto start_ns = farandole::now_ns();
  const int result = PMPI_Init(argc, argv);
  if (result == MPI_SUCCESS) farandole::pmpi::start("MPI_Init", start_ns);
  return result;
}

extern "C" int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const auto start_ns = farandole::now_ns();
  const int result = PMPI_Init_thread(argc, argv, required, provided);
  if (result == MPI_SUCCESS) farandole::pmpi::start("MPI_Init_thread", start_ns);
  return result;
}

extern "C" int MPI_Finalize() {
  farandole::pmpi::finish();
  return PMPI_Finalize();
}
