#include "farandole/comm/job/mpi_job.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>
#include <map>
#include <unistd.h>
#include <utility>
#include <xxhash.h>

#include "farandole/base/error.h"
#include "farandole/base/host.h"
#include "farandole/base/log.h"
#include "farandole/base/process/cores.h"
#include "farandole/base/process/launch_environment.h"
#include "farandole/comm/agreement.h"
#include "farandole/comm/job/transport.h"
#include "farandole/comm/mpi/mpi_check.h"
#include "farandole/comm/watch/start_watch.h"

namespace farandole {
namespace {

int count_machine_ranks(int size) {
  const std::string boot = boot_id();
  const std::uint64_t own = XXH3_64bits(boot.data(), boot.size());
  std::vector<std::uint64_t> all(static_cast<std::size_t>(size));
  check_mpi(MPI_Allgather(&own, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, MPI_COMM_WORLD),
            "MPI_Allgather");
  return static_cast<int>(std::ranges::count(all, own));
}

std::vector<std::string> gather_hosts(int size) {
  char own[256] = "";
  host_name().copy(own, sizeof own - 1);
  std::vector<char> all(static_cast<std::size_t>(size) * sizeof own);
  check_mpi(MPI_Allgather(own, sizeof own, MPI_CHAR, all.data(), sizeof own, MPI_CHAR, MPI_COMM_WORLD),
            "MPI_Allgather");
  std::vector<std::string> hosts;
  for (std::size_t r = 0; r < static_cast<std::size_t>(size); ++r)
    hosts.emplace_back(all.data() + r * sizeof own);
  return hosts;
}

// Each node is identified by its lowest rank.
// Collective: every rank of the job must call this in the same order.
std::vector<int> number_nodes(MPI_Comm node, int rank, int size) {
  int lowest = rank;
  check_mpi(MPI_Bcast(&lowest, 1, MPI_INT, 0, node), "MPI_Bcast");
  std::vector<int> lowest_by_rank(static_cast<std::size_t>(size));
  check_mpi(MPI_Allgather(&lowest, 1, MPI_INT, lowest_by_rank.data(), 1, MPI_INT, MPI_COMM_WORLD),
            "MPI_Allgather");
  std::map<int, int> number;
  for (const int first : lowest_by_rank) number.emplace(first, 0);
  int next = 0;
  for (auto& [first, own] : number) own = next++;
  std::vector<int> nodes;
  for (const int first : lowest_by_rank) nodes.push_back(number[first]);
  return nodes;
}

// Several threads may create groups with common ranks at the same time. The tag separates them.
int tag_of(std::span<const int> ranks) {
  constexpr std::uint64_t tags = 32768;  // number of tags that every MPI has
  return static_cast<int>(XXH3_64bits(ranks.data(), ranks.size_bytes()) % tags);
}

MPI_Comm create_group(std::span<const int> ranks, const RankLayout& layout) {
  check_group(ranks, layout.size);
  if (std::find(ranks.begin(), ranks.end(), layout.rank) == ranks.end())
    throw UserError(
        fmt::format("rank {} creates a communicator for a group that does not contain it", layout.rank));
  MPI_Group job = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &job), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(job, static_cast<int>(ranks.size()), ranks.data(), &group), "MPI_Group_incl");
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag_of(ranks), &comm), "MPI_Comm_create_group");
  MPI_Group_free(&group);
  MPI_Group_free(&job);
  return comm;
}

int count_node_cores(MPI_Comm node) {
  const auto own = core_mask();
  auto all = own;
  check_mpi(MPI_Allreduce(own.data(), all.data(), static_cast<int>(own.size()), MPI_UINT64_T, MPI_BOR, node),
            "MPI_Allreduce");
  int cores = 0;
  for (const auto word : all) cores += std::popcount(word);
  return cores;
}

RankLayout find_layout() {
  RankLayout layout;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &layout.rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &layout.size), "MPI_Comm_size");
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, layout.rank, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  MPI_Comm_rank(node, &layout.local_rank);
  MPI_Comm_size(node, &layout.local_size);
  layout.nodes = number_nodes(node, layout.rank, layout.size);
  layout.node_cores = count_node_cores(node);
  MPI_Comm_free(&node);
  layout.machine_ranks = count_machine_ranks(layout.size);
  layout.hosts = gather_hosts(layout.size);
  layout.node = layout.hosts[static_cast<std::size_t>(layout.rank)];
  return layout;
}

// MPI_Init_thread ends the process if it fails, and the program may be able to go on without MPI. What it
// calls in Open MPI returns the error. A tool that has replaced MPI_Init_thread must see the call.
bool start_mpi(int* provided) {
  using Start = int(int, char**, int, int*, bool);
  const auto find = [](const char* name) { return ::dlsym(RTLD_DEFAULT, name); };
  auto* const start = reinterpret_cast<Start*>(find("ompi_mpi_init"));
  if (start == nullptr || find("MPI_Init_thread") != find("PMPI_Init_thread"))
    return MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, provided) == MPI_SUCCESS;
  return start(0, nullptr, MPI_THREAD_MULTIPLE, provided, false) == MPI_SUCCESS;
}

}  // namespace

MpiJob::Runtime::Runtime() {
  const auto expected = expected_world_size(&std::getenv);
  if (in_slurm_step(&std::getenv) && expected && expected->value > 1 && !has_process_manager(&std::getenv))
    throw UserError(world_of_one_message(*expected, &std::getenv));
  if (const auto mixed = mixed_world_message(&std::getenv)) throw UserError(*mixed);
  int provided = MPI_THREAD_SINGLE, initialized = 0;
  MPI_Initialized(&initialized);
  is_own_ = initialized == 0;
  if (is_own_) {
    ::setenv(stack_signals_variable, "", 0);  // The launcher or another rank says how a rank was killed.
    const StartWatch watch(WatchdogOptions::from_environment());
    if (!start_mpi(&provided)) throw Error("MPI cannot start; the lines above are from Open MPI and say why");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  } else {
    if (!mpi_is_running())
      throw UserError(
          "the program has ended MPI, which can be started only once; start Farandole before MPI_Finalize");
    MPI_Query_thread(&provided);
  }
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::string refusal;
  if (provided < MPI_THREAD_MULTIPLE && !is_own_)
    refusal =
        "the program has started MPI without MPI_THREAD_MULTIPLE; start it with MPI_Init_thread and "
        "MPI_THREAD_MULTIPLE (mpi4py.rc.thread_level = \"multiple\"), or start Farandole first";
  else if (provided < MPI_THREAD_MULTIPLE)
    refusal =
        "this MPI library lacks MPI_THREAD_MULTIPLE, which overlapping communication needs; use an Open MPI "
        "that was built with it";
  else if (size == 1 && expected && expected->value > 1)
    refusal = world_of_one_message(*expected, &std::getenv);
  if (!refusal.empty()) {
    if (is_own_) MPI_Finalize();
    throw UserError(refusal);
  }
  // MPI_Finalize first deletes the attributes of MPI_COMM_SELF, when MPI still works.
  const auto call_back = [](MPI_Comm, int, void* own, void*) {
    auto& runtime = *static_cast<Runtime*>(own);
    runtime.attribute_ = MPI_KEYVAL_INVALID;
    runtime.is_own_ = false;
    const auto function = std::exchange(runtime.before_finalize, nullptr);
    if (function) function();  // It may end the job.
    return MPI_SUCCESS;
  };
  check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, call_back, &attribute_, nullptr),
            "MPI_Comm_create_keyval");
  check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, attribute_, this), "MPI_Comm_set_attr");
}

MpiJob::Runtime::~Runtime() {
  const bool ends_mpi = is_own_;
  before_finalize = nullptr;
  if (attribute_ != MPI_KEYVAL_INVALID) MPI_Comm_delete_attr(MPI_COMM_SELF, attribute_);
  if (ends_mpi) MPI_Finalize();
}

void MpiJob::before_finalize(std::function<void()> function) {
  runtime_.before_finalize = std::move(function);
}

void MpiJob::end_alone() {
  if (std::ranges::any_of(layout_.nodes, [](int node) { return node != 0; })) return;
  // Open MPI's own parameter async_mpi_finalize, which MPI_Init would have to find in the environment.
  if (void* const parameter = ::dlsym(RTLD_DEFAULT, "ompi_async_mpi_finalize"))
    *static_cast<bool*>(parameter) = true;
}

MpiJob::MpiJob() : layout_(find_layout()) {}

MpiJob::~MpiJob() = default;

std::unique_ptr<Communicator> MpiJob::new_communicator(Waiting waiting, Wire wire) const {
  return make_communicator(MPI_COMM_WORLD, layout_.nodes, types_, waiting, options(wire));
}

std::unique_ptr<Communicator> MpiJob::new_communicator(Waiting waiting, std::span<const int> ranks,
                                                       Wire wire) const {
  const MpiHandle comm(create_group(ranks, layout_));
  std::vector<int> nodes;
  for (const int rank : ranks) nodes.push_back(layout_.nodes[static_cast<std::size_t>(rank)]);
  return make_communicator(comm.comm, nodes, types_, waiting, options(wire));
}

int MpiJob::value_of_first(std::span<const int> ranks, int value) const {
  const MpiHandle comm(create_group(ranks, layout_));
  check_mpi(MPI_Bcast(&value, 1, MPI_INT, 0, comm.comm), "MPI_Bcast");
  return value;
}

std::unique_ptr<PointToPoint> MpiJob::new_messages(MessageProgress& progress) const {
  return std::make_unique<PointToPoint>(MPI_COMM_WORLD, progress);
}

std::unique_ptr<PointToPoint> MpiJob::new_messages(MessageProgress& progress,
                                                   std::span<const int> ranks) const {
  const MpiHandle comm(create_group(ranks, layout_));
  return std::make_unique<PointToPoint>(comm.comm, progress);
}

void MpiJob::use_transport(Transport transport) {
  if (transport == transport_) return;
  transport_ = transport;
  const std::lock_guard lock(links_mutex_);
  links_.reset();
}

TransportOptions MpiJob::options(Wire wire) const {
  TransportOptions options;
  options.transport = transport_;
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
    log_warning("{}; the ranks on {} communicate through MPI instead, which can be slower", reason,
                layout_.node);
  };
  return options;
}

std::optional<std::string> MpiJob::between_nodes() const {
  const std::lock_guard lock(links_mutex_);
  if (!links_) return std::nullopt;
  return links_->reason;
}

std::unique_ptr<MessageChannel> MpiJob::new_channel() const {
  return std::make_unique<MessageChannel>(MPI_COMM_WORLD);
}

std::string MpiJob::library_version() {
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  text.resize(static_cast<std::size_t>(length));
  return text.substr(0, text.find(','));
}

}  // namespace farandole
