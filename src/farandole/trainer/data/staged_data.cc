#include "farandole/trainer/data/staged_data.h"

#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>

#include <boost/algorithm/string/replace.hpp>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/tables/table.h"
#include "farandole/timeline/recorder/recorder_place.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

std::uint64_t bytes_of(const fs::path& data) {
  if (!fs::is_directory(data)) return fs::file_size(data);
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(data))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

// The files or the folder of the data; empty if there is nothing to copy.
std::vector<TableFile> sources_of(const std::string& data, const std::string& scratch) {
  if (scratch.empty() || data == "synthetic") return {};
  auto files = table_files(data);
  for (auto& [name, file] : files) {
    if (!fs::exists(file)) return {};
    file = fs::path(fs::absolute(file) / "").parent_path();  // no slash at its end
  }
  return files;
}

// The same on all ranks of a node, because the first of them copies only after all have called this.
fs::path place_of(const std::vector<TableFile>& sources, const std::string& scratch) {
  if (sources.empty()) return "";
  std::uint64_t bytes = 0;
  for (const auto& source : sources) bytes += bytes_of(source.file);
  return place_recorder(sources.front().file, {scratch, "--data-scratch"}, bytes).folder;
}

fs::path copy_of(const std::vector<TableFile>& sources, std::size_t i, const fs::path& folder) {
  return folder / std::to_string(i) / sources[i].file.filename();
}

void copy_data(const std::vector<TableFile>& sources, const fs::path& folder) try {
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto to = copy_of(sources, i, folder);
    fs::create_directory(to.parent_path());
    fs::copy(sources[i].file, to, fs::copy_options::recursive);
  }
} catch (const fs::filesystem_error& error) {
  throw UserError(fmt::format("--data-scratch: {} cannot be copied to {}: {}; name another folder",
                              sources.front().file.string(), folder.string(), error.code().message()));
}

}  // namespace

DataSplit open_staged_data(Session& session, const DataOptions& options, const std::string& scratch) {
  auto name = fmt::format("farandole-data-{}-{}", real_time_ns(), ::getpid());
  session.broadcast(name);
  std::vector<TableFile> sources;
  fs::path copy;
  session.together([&] {
    sources = sources_of(options.path, scratch);
    if (const auto place = place_of(sources, scratch); !place.empty())
      copy = place / fmt::format("{}-{}", name, session.node());
  });
  const auto remove_copy = [&] {
    std::error_code ignored;
    if (session.local_rank() == 0 && !copy.empty()) fs::remove_all(copy, ignored);
  };
  DataSplit data;
  try {
    auto own = options;
    session.together([&] {
      if (copy.empty()) return;
      own.path.clear();
      for (std::size_t i = 0; i < sources.size(); ++i)
        own.path += (i == 0 ? "" : ",") + (sources[i].name.empty() ? "" : sources[i].name + "=") +
                    copy_of(sources, i, copy).string();
      if (session.local_rank() == 0) copy_data(sources, copy);
    });
    session.together([&] { data = open_data(own); });
    if (!copy.empty()) boost::replace_first(data.source, own.path, options.path);
  } catch (...) {
    remove_copy();
    throw;
  }
  remove_copy();
  return data;
}

}  // namespace farandole
