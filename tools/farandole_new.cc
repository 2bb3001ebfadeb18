// farandole new: writes a small project of one's own, a copy of share/farandole/new.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fmt/format.h>
#include <string>
#include <system_error>

#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/options.h"
#include "farandole/base/process/program.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view name_in_files = "my-training";

// It becomes the name of a CMake project, of a Slurm job and of a run directory.
bool is_name(const std::string& text) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.'; };
  return !text.empty() && std::isalnum(static_cast<unsigned char>(text.front())) &&
         std::ranges::all_of(text, fits);
}

void write_files(const fs::path& from, const fs::path& folder, const std::string& name) {
  for (const auto& entry : fs::directory_iterator(from)) {
    auto text = read_whole_file(entry.path()).value_or("");
    for (std::size_t at = 0; (at = text.find(name_in_files, at)) != std::string::npos; at += name.size())
      text.replace(at, name_in_files.size(), name);
    write_file_atomically(folder / entry.path().filename(), text);
  }
}

int run(int argc, const char* const* argv) {
  std::string given;
  OptionParser parser;
  parser.usage =
      "Usage: farandole new NAME\n\n"
      "Writes a small project into the new folder NAME: a program that trains at once, without data, on any number\n"
      "of ranks (data loader, learning rate schedule, validation, checkpoints, early stop), its CMakeLists.txt and a\n"
      "batch script. Then put your model and your data into its main.cc.\n\n"
      "Examples:\n"
      "  $ farandole new net\n";
  namespace po = boost::program_options;
  parser.visible.add_options()("name", po::value(&given), "the new folder (positional argument)");
  parser.positional.add("name", 1);
  if (!parser.parse(argc, argv)) return 0;
  if (given.empty()) throw UserError("no name given; write for example: farandole new net");

  auto folder = fs::path(given).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  const auto name = folder.filename().string();
  if (!is_name(name))
    throw UserError(
        fmt::format("'{}' is no name for a project; use letters, digits, '_', '-' and '.', and begin "
                    "with a letter or digit",
                    name));
  std::error_code failure;
  if (fs::exists(fs::symlink_status(folder, failure)))
    throw UserError(fmt::format("{} exists; choose another name", folder.string()));
  const auto from = profiles_folder().parent_path() / "new";
  if (!fs::is_directory(from))
    throw Error(fmt::format("{} is missing; install Farandole again", from.string()));
  fs::create_directory(folder, failure);
  if (failure)
    throw UserError(
        fmt::format("cannot make the folder {}: {}; make the folder above it, or choose another one",
                    folder.string(), failure.message()));
  try {
    write_files(from, folder, name);
  } catch (...) {
    fs::remove_all(folder, failure);
    throw;
  }

  const auto prefix = program_folder().parent_path();
  const bool installed = fs::exists(prefix / "include/farandole/farandole.h");
  fmt::print(
      "{0} trains a small network, and needs no data for it. Build and run it:\n\n"
      "  cd {0}\n"
      "  cmake -B build -DCMAKE_PREFIX_PATH={1} && cmake --build build\n"
      "  farandole run -n 2 --run-dir runs/{2} -- build/train\n",
      folder.string(), installed ? prefix.string() : "PREFIX", name);
  if (!installed)
    fmt::print("\nPREFIX is the folder where you install Farandole: cmake --install {} --prefix PREFIX\n",
               prefix.string());
  return 0;
}

}  // namespace
}  // namespace farandole

int main(int argc, char** argv) {
  return farandole::run_main("farandole new", [&] { return farandole::run(argc, argv); });
}
