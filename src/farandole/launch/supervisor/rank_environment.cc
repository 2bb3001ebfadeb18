#include "farandole/launch/supervisor/rank_environment.h"

#include <algorithm>
#include <cstring>
#include <elf.h>
#include <fstream>
#include <initializer_list>
#include <string>

#include "farandole/base/error.h"
#include "farandole/base/process/program.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/launch/slurm/allocation.h"

namespace farandole {
namespace {

std::string text_of(const Environment& environment, std::initializer_list<const char*> variables) {
  for (const char* variable : variables)
    if (const char* value = environment(variable); value != nullptr && *value != '\0') return value;
  return "";
}

int number_of(const Environment& environment, std::initializer_list<const char*> variables, int otherwise) {
  return parse_number<int>(text_of(environment, variables)).value_or(otherwise);
}

int ranks_of_node(const Environment& environment) {
  const auto all = cpus_by_node(text_of(environment, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}));
  const auto node = static_cast<std::size_t>(number_of(environment, {"SLURM_NODEID"}, 0));
  return number_of(environment, {"FARANDOLE_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                   node < all.size() ? all[node] : 1);
}

}  // namespace

std::string first_host(std::string_view hosts) {
  std::string first;
  for (std::size_t i = 0; i < hosts.size() && hosts[i] != ','; ++i) {
    if (hosts[i] != '[') {
      first += hosts[i];
      continue;
    }
    const auto end = std::min(hosts.find(']', i), hosts.size());
    first += hosts.substr(i + 1, std::min(hosts.find_first_of(",-", i), end) - i - 1);
    i = end;
  }
  return first;
}

EnvironmentChanges torch_environment(int rank, int world_size, const Environment& environment) {
  int local_rank =
      number_of(environment, {"FARANDOLE_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}, 0);
  int local_size = ranks_of_node(environment);
  // With mpirun, a node's step of Slurm has only that node.
  const bool mpirun = !text_of(environment, {"OMPI_COMM_WORLD_LOCAL_RANK"}).empty();
  const auto step_nodes = mpirun ? "SLURM_JOB_NODELIST" : "SLURM_STEP_NODELIST";
  const auto node = local_size == world_size
                        ? std::string("127.0.0.1")
                        : first_host(text_of(environment, {step_nodes, "SLURM_JOB_NODELIST"}));
  const auto gpus = text_of(environment, {"CUDA_VISIBLE_DEVICES"});
  const bool one_gpu = !gpus.empty() && gpus.find(',') == std::string::npos;
  if (one_gpu && text_of(environment, {"SLURM_GPUS_PER_TASK", "SLURM_GPUS_ON_NODE"}) != "") {
    local_rank = 0;
    local_size = 1;
  }
  EnvironmentChanges changes = {{"RANK", std::to_string(rank)},
                                {"WORLD_SIZE", std::to_string(world_size)},
                                {"LOCAL_RANK", std::to_string(local_rank)},
                                {"LOCAL_WORLD_SIZE", std::to_string(local_size)}};
  if (text_of(environment, {"MASTER_ADDR"}).empty() && !node.empty())
    changes.emplace_back("MASTER_ADDR", node);
  return changes;
}

namespace fs = std::filesystem;

fs::path mpi_trace_library() {
  return (program_folder() / FARANDOLE_PMPI_LIBRARY).lexically_normal();
}

fs::path python_folder() {
  return (program_folder() / FARANDOLE_PYTHON_FOLDER).lexically_normal();
}

void require_python(const std::string& option) {
  const auto start = python_folder() / "start/sitecustomize.py";
  const auto library = (program_folder() / FARANDOLE_C_LIBRARY).lexically_normal();
  for (const auto& needed : {start, library})
    if (!fs::is_regular_file(needed))
      throw UserError(option + " needs " + needed.string() + ", which does not exist. " +
                      how_to_build("farandole_lib_c", false));
  if (start.string().find(':') != std::string::npos)
    throw UserError(option + " cannot put " + start.parent_path().string() +
                    " on PYTHONPATH: its path contains a colon; install Farandole in another folder");
}

EnvironmentChanges python_environment(const PythonOptions& options, const Environment& environment) {
  const auto folder = python_folder();
  if (!fs::is_directory(folder)) return {};
  std::string path = folder;
  if (options.trace || options.backend || options.horovod || options.guest)
    path = (folder / "start").string() + ":" + path;
  if (const auto others = text_of(environment, {"PYTHONPATH"}); !others.empty()) path += ":" + others;
  EnvironmentChanges changes = {{"PYTHONPATH", path}};
  if (options.trace) changes.emplace_back("FARANDOLE_TRACE_TORCH", "1");
  if (options.guest) changes.emplace_back("FARANDOLE_TRACE", "1");
  if (options.backend) changes.emplace_back("FARANDOLE_TORCH_BACKEND", "farandole");
  if (options.horovod) changes.emplace_back("FARANDOLE_HOROVOD", "1");
  return changes;
}

bool is_statically_linked(const fs::path& program) {
  std::ifstream file(program, std::ios::binary);
  Elf64_Ehdr header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_phentsize != sizeof(Elf64_Phdr))
    return false;
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!file.read(reinterpret_cast<char*>(&segment), sizeof segment)) return false;
    if (segment.p_type == PT_INTERP) return false;
  }
  return true;
}

void require_mpi_trace(const fs::path& program) {
  const auto library = mpi_trace_library();
  if (!fs::is_regular_file(library))
    throw UserError("--trace-mpi needs " + library.string() + ", which is not built. " +
                    how_to_build("farandole_pmpi", false));
  if (library.string().find_first_of(" :") != std::string::npos)
    throw UserError("--trace-mpi cannot preload " + library.string() +
                    ": its path contains a space or a colon; install Farandole in another folder");
  if (is_statically_linked(program))
    throw UserError("--trace-mpi cannot see the calls of " + program.string() +
                    ", which is statically linked; link it dynamically");
}

EnvironmentChanges mpi_trace_environment(const Environment& environment) {
  const char* const others = environment("LD_PRELOAD");
  const std::string library = mpi_trace_library();
  return {{"LD_PRELOAD", others == nullptr || *others == '\0' ? library : library + ":" + others}};
}

}  // namespace farandole
