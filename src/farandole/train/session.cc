#include "farandole/train/session.h"

#include <ATen/Context.h>
#include <algorithm>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <exception>
#include <filesystem>
#include <fmt/format.h>
#include <set>
#include <torch/utils.h>
#include <torch/version.h>

#include "farandole/base/bytes.h"
#include "farandole/base/error.h"
#include "farandole/base/host.h"
#include "farandole/base/log.h"
#include "farandole/base/process/cores.h"
#include "farandole/base/run/run_files.h"
#include "farandole/comm/gpu/gpu_choice.h"
#include "farandole/comm/gpu/gpu_runtime.h"
#include "farandole/comm/wrap/traced_communicator.h"
#include "farandole/job/job_errors.h"
#include "farandole/timeline/counters/gpu_counters.h"
#include "farandole/train/collectives_internals.h"
#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/session_internals.h"

namespace farandole {
namespace {

void share_cores(int local_size) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  torch::set_num_threads(std::max(1, has_own_cores() ? allowed_cores() : allowed_cores() / local_size));
}

// Returns nullptr and says why if this rank cannot use a GPU. LibTorch's CUDA library is loaded only when a
// program asks for a GPU. LibTorch looks for GPUs only once, so this must
// come before anything else of it that does so.
std::shared_ptr<const GpuRuntime> load_gpus(std::string& why_not) {
  const auto has_driver = [] {
    return std::filesystem::exists("/dev/nvidiactl") || std::filesystem::exists("/dev/dxg");
  };
  if (std::getenv("FARANDOLE_CUDA_LIBRARY") == nullptr && !has_driver()) {
    why_not = "there is no NVIDIA GPU on " + host_name();
    return nullptr;
  }
  auto runtime = GpuRuntime::load(why_not);
  if (runtime == nullptr) return nullptr;
  // LibTorch finds the kernels of CUDA through what this library registers. Nothing links it, so that
  // programs start where it or its dependencies are missing.
  if (::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    why_not = std::string("LibTorch has no CUDA here (") + ::dlerror() + "); install its build for CUDA";
    return nullptr;
  }
  if (!at::hasCUDA()) {
    why_not = "LibTorch finds no GPU";
    return nullptr;
  }
  return runtime;
}

// Makes a GPU the current one of this thread and of LibTorch.
GpuOfRank use_gpu(std::shared_ptr<const GpuRuntime> runtime, int device) {
  runtime->use(device);
  const torch::Device place(torch::kCUDA, static_cast<torch::DeviceIndex>(device));
  const c10::impl::VirtualGuardImpl cuda(torch::kCUDA);
  cuda.setDevice(place);
  return {std::move(runtime), device,
          [cuda, place] { return static_cast<CUstream_st*>(cuda.getStream(place).native_handle()); }};
}

}  // namespace

Session::Internals::Internals(TensorCollectives::Internals& collectives) {
  share_cores(layout().local_size);
  keep_freed_memory();
  communicator_changes = [&collectives](JoinCommunicator* ranks) { collectives.use(ranks); };
  communicator_changes(&communicator());
}

Session::Internals::~Internals() {
  communicator_changes(nullptr);
}

std::unique_ptr<TracedCommunicator> Session::Internals::new_communicator(Waiting waiting, Wire wire,
                                                                         Group* group) {
  return Job::new_communicator(waiting, wire, group == nullptr ? nullptr : group->ranks_.get());
}

DeviceCommunicatorOptions Session::Internals::device_options(Group* group) {
  DeviceCommunicatorOptions options;
  options.number = group == nullptr ? new_number() : group->ranks_->next_number();
  options.registry = watched_calls();
  options.launches = &launches();
  if (group != nullptr) options.world_ranks = group->ranks();
  return options;
}

std::string Session::Internals::gpu_to_watch() const {
  return gpus.empty() ? gpu_of_rank(layout().local_rank, std::getenv("CUDA_VISIBLE_DEVICES"))
                      : gpus[static_cast<std::size_t>(layout().rank)];
}

DistributedOptimizer* Session::Internals::optimizer_of(const torch::optim::Optimizer& inner) const {
  const auto found = std::find_if(optimizers.begin(), optimizers.end(),
                                  [&](auto* optimizer) { return &optimizer->inner() == &inner; });
  return found == optimizers.end() ? nullptr : *found;
}

Group::Group(std::unique_ptr<RankGroup> ranks, std::unique_ptr<Internals> internals)
    : TensorCollectives(std::move(internals)), ranks_(std::move(ranks)) {}

Group::~Group() = default;

const std::vector<int>& Group::ranks() const {
  return ranks_->ranks();
}

Session::Session(int, const char* const*) : Session(RecordFrom::start) {}

Session::Session(RecordFrom from)
    : TensorCollectives(std::make_unique<TensorCollectives::Internals>()),
      internals_(std::make_unique<Internals>(TensorCollectives::internals())),
      exceptions_at_start_(std::uncaught_exceptions()) {
  internals_->attend_errors(true);
  const auto folder = from == RecordFrom::start ? run_dir_of_environment() : std::filesystem::path();
  if (!folder.empty()) start_recording({.run_dir = folder});
}

Session::~Session() {
  if (std::uncaught_exceptions() > exceptions_at_start_) {
    end_job(*internals_, "farandole",
            {"the job ends because an exception leaves the session's scope; catch the exception inside the "
             "scope, or nowhere, to see it"});
  }
  internals_->come_to_end();
  try {
    internals_->publish();
  } catch (const std::exception& error) {
    // If rank 0 could not write, the other ranks still wait until it has read their records.
    end_job(*internals_, "farandole", {fmt::format("the timeline could not be written: {}", error.what())});
  }
  internals_->attend_errors(false);
}

int Session::local_rank() const {
  return internals_->layout().local_rank;
}
int Session::local_size() const {
  return internals_->layout().local_size;
}
int Session::node_cores() const {
  return internals_->layout().node_cores;
}
const std::string& Session::node() const {
  return internals_->layout().node;
}
const std::vector<std::string>& Session::hosts() const {
  return internals_->layout().hosts;
}
void Session::use_transport(std::string_view wish) {
  internals_->use_transport(parse_transport(wish, "the transport"));
}

std::optional<std::string> Session::between_nodes() const {
  return internals_->world().between_nodes();
}
torch::Device Session::device() const {
  return internals_->device;
}

std::string Session::use_device(std::string_view wish, int ranks_per_gpu) {
  if (wish != "cpu" && wish != "cuda" && wish != "auto")
    throw UserError(
        fmt::format("the device cannot be '{}'; use cpu, cuda (one GPU for each rank) or auto (GPUs if every "
                    "rank can have one)",
                    wish));
  if (wish == "cpu") return "CPUs";
  std::string why_not;
  auto runtime = load_gpus(why_not);
  struct Gpus {
    std::int32_t count = 0;
    char first[48] = {};
    char topology[192] = {};
  };
  Gpus own;
  if (runtime != nullptr) {
    own.count = runtime->device_count();
    store_text(own.first, runtime->describe(0).uuid);
  }
  auto& mine = *internals_;
  std::vector<Gpus> all(static_cast<std::size_t>(size()));
  const std::vector<std::size_t> bytes(all.size(), sizeof own);
  mine.communicator().all_gather("GPUs", &own, all.data(), bytes);
  const auto without = std::ranges::find(all, 0, &Gpus::count);
  if (without != all.end()) {
    together([&] {
      if (wish == "cuda" && runtime == nullptr)
        throw UserError(fmt::format("--device cuda cannot be used: {}; use --device cpu", why_not));
    });
    if (runtime == nullptr) return "CPUs: " + why_not;
    return fmt::format("CPUs: rank {} has no GPU", without - all.begin());
  }
  const auto& layout = mine.layout();
  const auto node_of = [&](std::size_t r) { return layout.nodes[r]; };
  std::vector<VisibleGpus> here;
  for (std::size_t r = 0; r < all.size(); ++r)
    if (node_of(r) == node_of(static_cast<std::size_t>(rank()))) here.push_back({all[r].count, all[r].first});
  Gpus chosen;
  int device = 0;
  try {
    together([&] { device = choose_gpu(here, local_rank(), node(), ranks_per_gpu); });
  } catch (const Error& error) {
    if (wish == "auto") return fmt::format("CPUs: {}", error.what());
    throw;
  }
  std::string name;
  together([&] {
    name = runtime->describe(device).name;
    mine.gpu = use_gpu(runtime, device);
    store_text(chosen.first, runtime->describe(device).uuid);
    store_text(chosen.topology, runtime->topology(device));
  });
  mine.communicator().all_gather("chosen GPUs", &chosen, all.data(), bytes);
  mine.gpus.clear();
  mine.gpu_topology.clear();
  for (const auto& gpu : all) {
    mine.gpus.emplace_back(gpu.first);
    mine.gpu_topology.emplace_back(gpu.topology);
  }
  mine.gpu->shared = std::set(mine.gpus.begin(), mine.gpus.end()).size() < mine.gpus.size();
  mine.device = torch::Device(torch::kCUDA, static_cast<torch::DeviceIndex>(mine.gpu->device));
  return name + (mine.gpu->shared ? ", shared by ranks" : ", one for each rank");
}

Timeline& Session::timeline() {
  return internals_->timeline();
}
const std::string& Session::no_gpu_activity() const {
  return internals_->no_gpu_activity();
}

std::unique_ptr<Group> Session::new_group(std::span<const int> ranks) {
  auto made = internals_->new_group(ranks);
  if (made.group == nullptr) return nullptr;
  return std::unique_ptr<Group>(new Group(
      std::move(made.group), std::make_unique<TensorCollectives::Internals>(std::move(made.communicator))));
}

void Session::start_recording(const RecordingOptions& options) {
  internals_->start_recording(options, internals_->gpu_to_watch());
  timeline().set_metadata("libtorch", TORCH_VERSION);
}

void Session::set_step(std::int64_t step) {
  internals_->program_sets_step(step);
}

void Session::publish_timeline() {
  internals_->publish_timeline();
}

void Session::together(const std::function<void()>& work) {
  internals_->together(work);
}

int run_session(const std::string& program, int, const char* const*, const std::function<int(Session&)>& body,
                RecordFrom from) {
  set_up_log();
  try {
    Session session(from);
    try {
      return body(session);
    } catch (const std::exception&) {
      const auto error = describe_error(std::current_exception(), &session.internals());
      if (error.first_rank < 0) end_job(session.internals(), program, error);
      say_agreed_error(session.internals(), program, error);
      return static_cast<int>(error.code);
    }
  } catch (const Error& error) {  // There is no session with which the ranks could agree.
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return static_cast<int>(error.exit_code());
  }
}

}  // namespace farandole
