#include "farandole/launch/supervisor/mpi_preload.h"

#include <cstring>
#include <elf.h>
#include <fstream>
#include <string>

#include "farandole/base/error.h"
#include "farandole/base/process/program.h"

namespace farandole {

namespace fs = std::filesystem;

fs::path mpi_trace_library() {
  return (program_folder() / FARANDOLE_PMPI_LIBRARY).lexically_normal();
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
