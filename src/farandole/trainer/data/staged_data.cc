#include "farandole/trainer/data/staged_data.h"

#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>

#include <boost/algorithm/string/replace.hpp>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
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

// The same on all ranks of a node, because the first of them copies only after all have called this.
fs::path place_of(const std::string& data, const std::string& scratch) {
  if (scratch.empty() || data == "synthetic" || !fs::exists(data)) return "";
  return place_recorder(data, {scratch, "--data-scratch"}, bytes_of(data)).folder;
}

void copy_data(const fs::path& from, const fs::path& to) try {
  fs::create_directory(to);
  fs::permissions(to, fs::perms::owner_all);
  fs::copy(from, to / from.filename(), fs::copy_options::recursive);
} catch (const fs::filesystem_error& error) {
  throw UserError(fmt::format("--data-scratch: {} cannot be copied to {}: {}; name another folder",
                              from.string(), to.string(), error.code().message()));
}

}  // namespace

DataSplit open_staged_data(Session& session, const DataOptions& options, const std::string& scratch) {
  auto name = fmt::format("farandole-data-{}-{}", real_time_ns(), ::getpid());
  session.broadcast(name);
  fs::path copy;
  session.together([&] {
    if (const auto place = place_of(options.path, scratch); !place.empty())
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
      const auto source = fs::path(fs::absolute(options.path) / "").parent_path();  // no slash at its end
      own.path = copy / source.filename();
      if (session.local_rank() == 0) copy_data(source, copy);
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
