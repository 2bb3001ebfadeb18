// The recording of a program without a session, from its MPI_Init to its MPI_Finalize, by the thread that
// calls them. A session starts MPI by its PMPI_ name and sends the calls to its own timeline: then nothing
// happens here.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <mpi.h>
#include <unistd.h>

#include "farandole/base/clock.h"
#include "farandole/comm/mpi_job.h"
#include "farandole/comm/recording.h"
#include "farandole/pmpi/recorded_call.h"
#include "farandole/timeline/recorder_place.h"

namespace farandole::pmpi {
namespace {

struct OwnRecording {
  OwnRecording(const TimelineOptions& options, const std::filesystem::path& run_dir)
      : timeline(options), recording(std::make_unique<MessageChannel>(MPI_COMM_WORLD), timeline, run_dir) {
    timeline.state("farandole", FARANDOLE_VERSION);
    timeline.state("mpi", MpiJob::library_version());
  }

  Timeline timeline;
  Recording recording;
};

// As recorded_call.h's sink: MPI_Init and MPI_Finalize have no other place for what lives between them.
std::unique_ptr<OwnRecording>& own_recording() {
  static std::unique_ptr<OwnRecording> recording;
  return recording;
}

void tell(const std::exception& error) {
  std::fprintf(stderr, "farandole: the program's MPI calls are not recorded: %s\n", error.what());
}

TimelineOptions options_in(const std::filesystem::path& run_dir) {
  TimelineOptions options;
  PMPI_Comm_rank(MPI_COMM_WORLD, &options.rank);
  PMPI_Comm_size(MPI_COMM_WORLD, &options.world_size);
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  options.host = host;
  options.file = run_dir / "recorder" / fmt::format("rank-{:04}.ftl", options.rank);
  return options;
}

// Ranks that cannot record, for want of a folder or disk, say so and take part in the exchange of clocks.
void start(const char* name, std::int64_t start_ns) {
  const std::int64_t end_ns = now_ns();
  const char* const run_dir = std::getenv("FARANDOLE_RUN_DIR");
  if (run_dir == nullptr || *run_dir == '\0') return;
  auto& own = own_recording();
  auto options = options_in(run_dir);
  try {
    options.node_folder = place_recorder(run_dir, wished_place(), options.recorder_bytes);
    own = std::make_unique<OwnRecording>(options, run_dir);
  } catch (const std::exception& error) {
    tell(error);
    options.file.clear();
    own = std::make_unique<OwnRecording>(options, run_dir);
  }
  own->timeline.span(Category::other, name, start_ns, end_ns);
}

// How long the last rank is waited for is known only here: what MPI_Finalize does itself comes too late.
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
  own.reset();
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
