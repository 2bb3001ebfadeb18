#include "farandole/launch/supervisor/rank_environment.h"

#include <algorithm>
#include <elf.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "environment_of.h"

#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

using testing::EndsWith;

Variables seen_by(int rank, int world_size, const Variables& given) {
  Variables all;
  for (const auto& [name, value] : torch_environment(rank, world_size, environment_of(given)))
    all[name] = value.value_or("(removed)");
  return all;
}

const Variables step = {{"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                        {"SLURM_STEP_NODELIST", "gpu[08-10]"},
                        {"SLURM_JOB_NODELIST", "gpu[07-10]"},
                        {"SLURM_NODEID", "1"},
                        {"SLURM_LOCALID", "1"}};

TEST(TorchEnvironment, ComesFromTheStepOfSlurm) {
  EXPECT_EQ(seen_by(3, 5, step), (Variables{{"RANK", "3"},
                                            {"WORLD_SIZE", "5"},
                                            {"LOCAL_RANK", "1"},
                                            {"LOCAL_WORLD_SIZE", "2"},
                                            {"MASTER_ADDR", "gpu08"}}));
}

TEST(TorchEnvironment, ComesFromMpirun) {
  const Variables local = {{"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_EQ(seen_by(1, 2, local).at("MASTER_ADDR"), "127.0.0.1");
  EXPECT_EQ(seen_by(1, 2, local).at("LOCAL_RANK"), "1");
  auto job = local;
  job.merge(Variables{
      {"SLURM_JOB_NODELIST", "n1,n2"}, {"SLURM_STEP_NODELIST", "n2"}, {"SLURM_TASKS_PER_NODE", "3(x2)"}});
  EXPECT_EQ(seen_by(3, 4, job).at("MASTER_ADDR"), "n1");
  EXPECT_EQ(seen_by(3, 4, job).at("LOCAL_WORLD_SIZE"), "2");
}

TEST(TorchEnvironment, ComesFromTheLauncherItself) {
  auto own = step;
  own.merge(Variables{{"FARANDOLE_LOCAL_RANK", "3"}, {"FARANDOLE_LOCAL_SIZE", "5"}});
  EXPECT_EQ(seen_by(3, 5, own).at("LOCAL_RANK"), "3");
  EXPECT_EQ(seen_by(3, 5, own).at("LOCAL_WORLD_SIZE"), "5");
  EXPECT_EQ(seen_by(3, 5, own).at("MASTER_ADDR"), "127.0.0.1");
}

TEST(TorchEnvironment, KeepsTheAddressOfTheUser) {
  auto own = step;
  own["MASTER_ADDR"] = "10.0.0.1";
  EXPECT_EQ(seen_by(0, 5, own).count("MASTER_ADDR"), 0u);
}

TEST(TorchEnvironment, NumbersTheVisibleGpus) {
  auto gpus = step;
  gpus["SLURM_GPUS_ON_NODE"] = "2";
  gpus["CUDA_VISIBLE_DEVICES"] = "0,1";
  EXPECT_EQ(seen_by(3, 5, gpus).at("LOCAL_RANK"), "1");
  gpus["CUDA_VISIBLE_DEVICES"] = "1";
  EXPECT_EQ(seen_by(3, 5, gpus).at("LOCAL_RANK"), "0");
  EXPECT_EQ(seen_by(3, 5, gpus).at("LOCAL_WORLD_SIZE"), "1");
}

TEST(TorchEnvironment, ReadsSlurmsListsOfHosts) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("gpu-a,gpu-b"), "gpu-a");
  EXPECT_EQ(first_host("r[1-2]n[003,007-9]-ib,x"), "r1n003-ib");
  EXPECT_EQ(first_host("n[5]"), "n5");
  EXPECT_EQ(first_host("n[5"), "n5");
  EXPECT_EQ(first_host(""), "");
}

TEST(MpiPreload, KeepsWhatIsPreloadedAlready) {
  const auto preloads = [](const char* others) {
    const auto changes = mpi_trace_environment([&](const char*) { return others; });
    EXPECT_EQ(changes.size(), 1u);
    EXPECT_EQ(changes.at(0).first, "LD_PRELOAD");
    return changes.at(0).second.value_or("");
  };
  EXPECT_THAT(preloads(nullptr), EndsWith("/libfarandole_pmpi.so"));
  EXPECT_THAT(preloads(""), EndsWith("/libfarandole_pmpi.so"));
  EXPECT_THAT(preloads("/x/tcmalloc.so"), EndsWith("/libfarandole_pmpi.so:/x/tcmalloc.so"));
}

TEST(PythonEnvironment, FindsTheModulesBeforeThoseOfTheUser) {
  const auto python = [](const PythonOptions& options, const Variables& given) {
    Variables all;
    for (const auto& [name, value] : python_environment(options, environment_of(given)))
      all[name] = value.value_or("(removed)");
    return all;
  };
  const auto folder = python_folder().string(), both = folder + "/start:" + folder;
  EXPECT_THAT(folder, EndsWith("/farandole/python"));
  EXPECT_EQ(python({}, {}), (Variables{{"PYTHONPATH", folder}}));
  EXPECT_EQ(python({}, {{"PYTHONPATH", "/mine"}}), (Variables{{"PYTHONPATH", folder + ":/mine"}}));
  EXPECT_EQ(python({.trace = true}, {{"PYTHONPATH", "/mine"}}),
            (Variables{{"PYTHONPATH", both + ":/mine"}, {"FARANDOLE_TRACE_TORCH", "1"}}));
  EXPECT_EQ(python({.guest = true}, {}), (Variables{{"PYTHONPATH", both}, {"FARANDOLE_TRACE", "1"}}));
  EXPECT_EQ(python({.backend = true}, {{"PYTHONPATH", ""}}),
            (Variables{{"PYTHONPATH", both}, {"FARANDOLE_TORCH_BACKEND", "farandole"}}));
  EXPECT_EQ(python({.horovod = true}, {}), (Variables{{"PYTHONPATH", both}, {"FARANDOLE_HOROVOD", "1"}}));
}

TEST(MpiPreload, TellsStaticPrograms) {
  const TemporaryFolder folder;
  EXPECT_FALSE(is_statically_linked("/proc/self/exe"));
  EXPECT_FALSE(is_statically_linked("/bin/sh"));
  EXPECT_FALSE(is_statically_linked(folder / "missing"));
  const auto program = folder / "program";
  for (const char* text : {"", "#!/bin/sh\n", "\177ELF"}) {
    std::ofstream(program) << text;
    EXPECT_FALSE(is_statically_linked(program)) << text;
  }
  Elf64_Ehdr header{};
  std::copy_n(ELFMAG, SELFMAG, header.e_ident);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 2;
  Elf64_Phdr segments[2] = {};
  segments[0].p_type = segments[1].p_type = PT_LOAD;
  const auto write = [&](std::size_t bytes) {
    std::ofstream file(program, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&header), sizeof header);
    file.write(reinterpret_cast<const char*>(segments), static_cast<std::streamsize>(bytes));
  };
  write(sizeof segments);
  EXPECT_TRUE(is_statically_linked(program));
  write(sizeof segments - 1);
  EXPECT_FALSE(is_statically_linked(program)) << "cut: the kernel says what is wrong with it";
  segments[1].p_type = PT_INTERP;
  write(sizeof segments);
  EXPECT_FALSE(is_statically_linked(program));
}

}  // namespace
}  // namespace farandole
