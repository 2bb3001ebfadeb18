#include "farandole/comm/job/world.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/host.h"
#include "farandole/base/log.h"
#include "farandole/base/process/cores.h"
#include "farandole/base/process/launch_environment.h"
#include "farandole/comm/agreement.h"
#include "farandole/comm/control/control_communicator.h"
#include "farandole/comm/mpi/mpi_check.h"
#include "farandole/comm/watch/start_watch.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

std::string value_of_variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

int number_of_variable(const char* name) {
  return std::atoi(value_of_variable(name).c_str());
}

bool is_on_one_node(int size) {
  for (const char* const name : {"FARANDOLE_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
    if (const int here = number_of_variable(name); here > 0) return here == size;
  return in_slurm_step(&std::getenv) && number_of_variable("SLURM_STEP_NUM_NODES") == 1;
}

// What tells this start of the job from all others on its nodes.
std::string name_of_start() {
  std::string name;
  for (const char* const variable :
       {"FARANDOLE_MEETING", "PMIX_NAMESPACE", "PMIX_SERVER_URI2", "PMIX_SERVER_URI21", "PMIX_SERVER_URI3",
        "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"})
    name += value_of_variable(variable) + " ";
  return name;
}

// Rank 0 removes the file when the ranks have met.
fs::path meeting_file() {
  if (const auto file = value_of_variable("FARANDOLE_MEETING"); !file.empty()) return file;
  return fmt::format(".farandole-meeting-{}.{}-{}", value_of_variable("SLURM_JOB_ID"),
                     value_of_variable("SLURM_STEP_ID"), value_of_variable("SLURM_RESTART_COUNT"));
}

// Blocks until all ranks have called it, which they do in ControlPlane::join().
MeetingPlace meet_through_mpi() {
  const auto tell = [](std::string text) {
    auto bytes = static_cast<int>(text.size());
    check_mpi(MPI_Bcast(&bytes, 1, MPI_INT, 0, MPI_COMM_WORLD), "MPI_Bcast");
    text.resize(static_cast<std::size_t>(bytes));
    check_mpi(MPI_Bcast(text.data(), bytes, MPI_CHAR, 0, MPI_COMM_WORLD), "MPI_Bcast");
    return text;
  };
  MeetingPlace meeting;
  meeting.publish = tell;
  meeting.look = [tell, told = std::make_shared<std::string>()]() -> std::optional<std::string> {
    if (told->empty()) *told = tell("");
    return *told;
  };
  return meeting;
}

bool meets_through_mpi() {
  return mpi_is_running() ||
         (value_of_variable("FARANDOLE_MEETING").empty() && has_process_manager(&std::getenv));
}

// What the program's own MPI says, else the launcher.
ControlPlane::Start start_of_job() {
  ControlPlane::Start start;
  if (mpi_is_running()) {
    start.rank = rank_in(MPI_COMM_WORLD);
    start.size = size_of(MPI_COMM_WORLD);
  } else {
    if (const auto mixed = mixed_world_message(&std::getenv)) throw UserError(*mixed);
    const auto rank = launched_rank(&std::getenv), size = expected_world_size(&std::getenv);
    if (size && size->value > 1 && !rank) throw UserError(world_of_one_message(*size, &std::getenv));
    if (rank && size) start.size = size->value;
    if (rank && size) start.rank = rank->value;
  }
  start.several_nodes = !is_on_one_node(start.size);
  start.meeting = !start.several_nodes  ? meet_on_node(name_of_start())
                  : meets_through_mpi() ? meet_through_mpi()
                                        : meet_in_file(meeting_file());
  return start;
}

}  // namespace

RankLayout layout_of(ControlPlane& control) {
  RankLayout layout;
  layout.rank = control.rank();
  layout.size = control.size();
  const auto& ranks = control.ranks();
  const auto& own = ranks[static_cast<std::size_t>(layout.rank)];
  std::map<std::uint64_t, int> numbers;
  std::vector<int> mates;
  layout.machine_ranks = 0;
  for (int rank = 0; rank < layout.size; ++rank) {
    const auto& facts = ranks[static_cast<std::size_t>(rank)];
    layout.hosts.push_back(facts.host);
    layout.nodes.push_back(numbers.emplace(facts.node, static_cast<int>(numbers.size())).first->second);
    if (facts.machine == own.machine) ++layout.machine_ranks;
    if (facts.node == own.node) mates.push_back(rank);
  }
  layout.local_rank = static_cast<int>(std::ranges::find(mates, layout.rank) - mates.begin());
  layout.local_size = static_cast<int>(mates.size());
  layout.node = own.host;
  ControlCommunicator node(control, mates);
  auto cores = core_mask();
  std::vector<std::uint64_t> all(cores.size() * mates.size());
  node.all_gather("cores", cores.data(), all.data(),
                  std::vector<std::size_t>(mates.size(), cores.size() * sizeof cores[0]));
  for (std::size_t i = 0; i < all.size(); ++i) cores[i % cores.size()] |= all[i];
  layout.node_cores = 0;
  for (const auto word : cores) layout.node_cores += std::popcount(word);
  return layout;
}

World::World(std::optional<std::chrono::nanoseconds> limit) {
  auto start = start_of_job();
  const int size = start.size;
  const StartWatch watch(WatchdogOptions::from_environment());
  if (size > 1 && start.several_nodes && meets_through_mpi() && !mpi_is_running())
    mpi_ = std::make_unique<MpiRuntime>(size);
  control_ = std::make_unique<ControlPlane>(std::move(start));
  control_->join(limit);
  if (const auto absent = std::ranges::find(control_->ranks(), "", &RankFacts::host);
      size > 1 && absent != control_->ranks().end())
    throw Error(fmt::format("rank {} has not come", absent - control_->ranks().begin()), ExitCode::peer_lost);
  std::error_code ignored;
  if (size > 1 && control_->rank() == 0) fs::remove(meeting_file(), ignored);
  layout_ = layout_of(*control_);
}

World::~World() = default;

void World::check(std::span<const int> ranks) const {
  check_group(ranks, layout_.size);
  if (std::ranges::find(ranks, layout_.rank) == ranks.end())
    throw UserError(
        fmt::format("rank {} creates a communicator for a group that does not contain it", layout_.rank));
}

std::unique_ptr<Communicator> World::new_communicator(Waiting waiting, Wire wire) {
  start_mpi_if_needed();
  return new_communicator(waiting, all_ranks(layout_.size), wire);
}

std::unique_ptr<Communicator> World::new_communicator(Waiting waiting, std::span<const int> ranks,
                                                      Wire wire) {
  check(ranks);
  std::vector<int> nodes;
  for (const int rank : ranks) nodes.push_back(layout_.nodes[static_cast<std::size_t>(rank)]);
  ControlCommunicator group(*control_, {ranks.begin(), ranks.end()});
  return make_communicator(group, nodes, waiting, options(wire));
}

int World::value_of_first(std::span<const int> ranks, int value) {
  check(ranks);
  ControlCommunicator(*control_, {ranks.begin(), ranks.end()}).broadcast("value", &value, sizeof value, 0);
  return value;
}

std::unique_ptr<PointToPoint> World::new_messages(Tickets& tickets) {
  return new_messages(tickets, all_ranks(layout_.size));
}

std::unique_ptr<PointToPoint> World::new_messages(Tickets& tickets, std::span<const int> ranks) {
  check(ranks);
  return std::make_unique<PointToPoint>(
      std::make_unique<MessageChannel>(*control_, std::vector<int>(ranks.begin(), ranks.end())), tickets);
}

std::unique_ptr<MessageChannel> World::new_channel() {
  return std::make_unique<MessageChannel>(*control_, all_ranks(layout_.size));
}

void World::before_finalize(std::function<void()> function) {
  before_finalize_ = std::move(function);
  if (mpi_is_running()) start_mpi();
}

void World::use_transport(Transport transport) {
  if (transport == transport_) return;
  transport_ = transport;
  const std::lock_guard lock(links_mutex_);
  links_.reset();
}

void World::start_mpi_if_needed() {
  const bool several_nodes = layout_.local_size < layout_.size;
  const bool asked = transport_ == Transport::mpi || transport_ == Transport::mpi_messages;
  if (asked || mpi_ != nullptr) return start_mpi();
  if (transport_ != Transport::automatic || !several_nodes) return;
  std::uint8_t all_can = has_process_manager(&std::getenv) ? 1 : 0;
  ControlCommunicator everyone(*control_, all_ranks(layout_.size));
  everyone.allreduce("process managers", &all_can, 1, DType::uint8, ReduceOp::min);
  if (all_can != 0) start_mpi();
}

void World::start_mpi() {
  if (mpi_ == nullptr) mpi_ = std::make_unique<MpiRuntime>(layout_.size);
  mpi_->before_finalize(before_finalize_);
}

TransportOptions World::options(Wire wire) {
  TransportOptions options;
  options.transport = transport_;
  options.mpi = mpi_.get();
  options.hierarchy.wire = wire;
  {
    const std::lock_guard lock(links_mutex_);
    options.known_links = links_;
  }
  options.chose_links = [this](const LinkChoice& choice) {
    const std::lock_guard lock(links_mutex_);
    if (!links_ || !links_->compared) links_ = choice;
  };
  options.machine_ranks = layout_.machine_ranks;
  options.fell_back = [this](const std::string& reason) {
    if (said_fallback_.exchange(true)) return;
    log_warning("{}; the ranks on {} communicate in a slower way", reason, layout_.node);
  };
  return options;
}

std::optional<std::string> World::between_nodes() const {
  const std::lock_guard lock(links_mutex_);
  if (!links_) return std::nullopt;
  return links_->reason;
}

std::string World::library_version() {
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  text.resize(static_cast<std::size_t>(length));
  return text.substr(0, text.find(','));
}

// MPI_Abort has srun kill the supervisors too, and waits for two seconds in which mpirun does nothing else.
// After a lost peer, the supervisors end the job themselves, and save first what the ranks recorded.
void abort_job(ControlPlane* control, int exit_code) {
  const char* const supervised = std::getenv(supervised_variable);
  if (supervised != nullptr && exit_code == static_cast<int>(ExitCode::peer_lost)) std::_Exit(exit_code);
  if (supervised != nullptr) {
    const auto rank = launched_rank(&std::getenv);
    announce_abort(supervised, {rank ? rank->value : 0, exit_code, real_time_ns(), host_name()});
  }
  if (control != nullptr) control->end_all(exit_code);
  std::_Exit(exit_code);
}

}  // namespace farandole
