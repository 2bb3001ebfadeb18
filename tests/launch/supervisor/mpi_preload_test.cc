#include "farandole/launch/supervisor/mpi_preload.h"

#include <algorithm>
#include <elf.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

using testing::EndsWith;

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
