#include "farandole/timeline/recorder/node_file.h"

#include <algorithm>
#include <exception>
#include <fcntl.h>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/run/run_files.h"
#include "farandole/timeline/recorder/recorder_cut.h"
#include "farandole/timeline/recorder/recorder_file.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t page = 4096;

std::uint64_t pages_of(std::uint64_t bytes) {
  return (bytes + page - 1) / page;
}

struct Part {
  std::uint64_t begin = 0, bytes = 0;
  std::string name;
};

// After a damaged header, looks for the next sound one.
std::vector<Part> parts_in(const fs::path& file, int fd) {
  recorder::FixedHeader header{};
  const auto is_sound_at = [&](std::uint64_t at) {
    return read_bytes(fd, at, std::as_writable_bytes(std::span(&header, 1)), file) == sizeof header &&
           header.magic == recorder::magic && header.crc == crc_of(header) && header.part_pages > 0;
  };
  const auto size = fs::file_size(file);
  std::vector<Part> parts;
  for (std::uint64_t at = 0, next = 0; at < size; at = next) {
    const bool sound = is_sound_at(at);
    parts.push_back(
        {at, 0, sound ? recorder_file("", header.rank).filename().string() : fmt::format("part-{}.ftl", at)});
    next = at + (sound ? header.part_pages : 1) * page;
    while (!sound && next < size && !is_sound_at(next)) next += page;
    parts.back().bytes = next - at;
  }
  return parts;
}

struct Source {
  std::unique_ptr<RecorderFile> recorder;
  fs::path file;
  struct stat status {};
  bool packed = false;  // It is a part already.
};

bool has_ended(const RecorderFile& recorder) {
  if (recorder.closed()) return true;
  // A file on its node has another name, and no lock.
  if (recorder.clock() == 0 || recorder.clock() != clock_id() || !rank_of_recorder(recorder.path()))
    return false;
  const OwnedDescriptor file(::open(recorder.path().c_str(), O_RDWR | O_CLOEXEC));
  return file.get() >= 0 && claim_file(file.get());
}

// Of the ranks that have ended, as that of `locked` has, which this process has claimed. Damaged files stay
// as they are. `all`: whether none of the other ranks may record.
std::vector<Source> sources_of(const std::vector<fs::path>& files, const fs::path& locked, bool only_here,
                               bool& all) {
  std::vector<Source> sources;
  all = true;
  for (const auto& file : files) {
    Source source{nullptr, file};
    std::error_code ignored;
    if (fs::is_symlink(node_link(file), ignored)) all = false;  // still on its node
    if (::stat(file.c_str(), &source.status) != 0) continue;
    try {
      source.recorder = std::make_unique<RecorderFile>(file);
    } catch (const Error&) {
      continue;
    }
    if (!source.recorder->problems().empty() || (only_here && source.recorder->clock() != clock_id()))
      continue;
    if (file == locked || has_ended(*source.recorder))
      sources.push_back(std::move(source));
    else
      all = false;
  }
  return sources;
}

fs::path node_file_of(const fs::path& folder, const RecorderFile& recorder) {
  auto host = recorder.host().substr(0, 200);
  std::replace(host.begin(), host.end(), '/', '_');
  return folder / fmt::format("node-{}-{:08x}.ftl", host, recorder.clock());
}

// Writes only what the recorders use; the rest are holes.
void write_parts(const std::vector<Source>& sources, const RawData& file) {
  std::uint64_t begin = 0;
  std::vector<std::byte> block(std::size_t{256} << 10);
  for (const auto& [recorder, path, status, packed] : sources) {
    const auto used = recorder->used();
    for (auto [at, until] : used)
      for (std::size_t there = 1; at < until && there > 0; at += there) {
        there = recorder->read(at, block.data(), std::min<std::uint64_t>(block.size(), until - at));
        file.write(begin + at, std::span(block).first(there));
      }
    recorder::FixedHeader header{};
    recorder->read(0, &header, sizeof header);
    header.part_pages = static_cast<std::uint32_t>(pages_of(used.back().second));
    header.crc = crc_of(header);
    file.write(begin, std::as_bytes(std::span(&header, 1)));
    begin += header.part_pages * page;
  }
  file.resize(begin);
}

// `only_here`: packs the ranks of this host, and only if none of them may still record.
bool pack(const std::vector<fs::path>& files, bool only_here, bool sync) {
  bool all = true;
  auto sources = sources_of(files, {}, only_here, all);
  if (sources.empty() || (only_here && !all)) return false;
  const auto target = node_file_of(files.front().parent_path(), *sources.front().recorder);
  // The next call replaces what a kill leaves.
  const auto temporary = fs::path(target).replace_extension(".part");
  std::error_code ignored;
  const bool extends = fs::exists(target, ignored);
  if (sources.size() < 2 && !extends) return false;
  // One process at a time. Of two ranks that end at once, both may come here.
  const auto locked = sources.front().file;
  const OwnedDescriptor lock(::open(locked.c_str(), O_RDWR | O_CLOEXEC));
  if (lock.get() < 0 || !claim_file(lock.get())) return false;
  sources = sources_of(files, locked, only_here, all);
  if (sources.empty()) return false;
  timespec newest{};
  std::set<int> ranks;
  for (const auto& source : sources) ranks.insert(source.recorder->rank());
  if (extends)
    for (const auto& part : parts_of(target)) {
      Source source{std::make_unique<RecorderFile>(part), target, {}, true};
      if (!source.recorder->problems().empty()) return false;  // It must not look sound afterwards.
      ::stat(target.c_str(), &source.status);
      if (!ranks.contains(source.recorder->rank())) sources.push_back(std::move(source));
    }
  for (const auto& source : sources)
    if (changed_ns(source.status) >= newest.tv_sec * ns_per_second + newest.tv_nsec)
      newest = source.status.st_mtim;
  try {
    write_parts(sources, RawData(temporary, O_WRONLY | O_CREAT | O_TRUNC));
    const timespec times[] = {{0, UTIME_OMIT}, newest};  // Readers compare it with that of the trace.
    ::utimensat(AT_FDCWD, temporary.c_str(), times, 0);
    if (sync)
      publish_file(temporary, target);
    else if (::rename(temporary.c_str(), target.c_str()) != 0)
      throw system_error("rename", temporary);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  // The claimed file is the last one to go. A new start may have made a file of this name meanwhile.
  for (auto source = sources.rbegin(); source != sources.rend(); ++source)
    if (struct stat there{};
        !source->packed && ::stat(source->file.c_str(), &there) == 0 && there.st_ino == source->status.st_ino)
      ::unlink(source->file.c_str());
  return true;
}

}  // namespace

bool is_node_file(const fs::path& file) {
  return file.extension() == ".ftl" && file.filename().string().starts_with("node-");
}

std::vector<fs::path> parts_of(const fs::path& node_file) try {
  std::vector<fs::path> paths;
  for (const auto& part : parts_in(node_file, open_regular_file(node_file).get()))
    paths.push_back(node_file / part.name);
  return paths.empty() ? std::vector{node_file} : paths;
} catch (const std::exception&) {
  return {node_file};  // RecorderFile says why it cannot be read.
}

OpenedPart open_part(const fs::path& path) {
  const auto file = path.parent_path();
  OpenedPart opened{open_regular_file(file)};
  if (opened.fd.get() < 0) return opened;
  for (const auto& part : parts_in(file, opened.fd.get()))
    if (part.name == path.filename()) return {std::move(opened.fd), part.begin, part.bytes};
  opened.fd.reset();
  errno = ENOENT;
  return opened;
}

std::vector<fs::path> recorders_in(const fs::path& folder, std::error_code& failure) {
  std::vector<fs::path> files, nodes;
  std::set<fs::path> names;
  for (const auto& file : staged_files_in(folder, ".ftl", failure)) {
    (is_node_file(file) ? nodes : files).push_back(file);
    names.insert(file.filename());
  }
  for (const auto& node : nodes)
    for (const auto& part : parts_of(node))
      if (part == node || !names.contains(part.filename())) files.push_back(part);
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.filename() < b.filename(); });
  return files;
}

std::optional<fs::path> readable_recorder(const fs::path& run_dir, int rank) {
  const auto file = recorder_file(run_dir, rank);
  std::error_code ignored;
  if (const auto here = readable_at(file); fs::exists(here, ignored)) return here;
  for (const auto& other : recorders_in(file.parent_path(), ignored))
    if (other != file && other.filename() == file.filename()) return other;
  return std::nullopt;
}

bool pack_node(const fs::path& run_dir, std::span<const int> ranks) noexcept try {
  std::vector<fs::path> files;
  for (const int rank : ranks) files.push_back(recorder_file(run_dir, rank));
  return !files.empty() && pack(files, true, false);
} catch (const std::exception&) {
  return false;
}

void pack_nodes(const fs::path& run_dir) noexcept try {
  const auto folder = run_dir / "recorder";
  std::map<fs::path, std::vector<fs::path>> nodes;
  std::error_code ignored;
  for (const auto& file : staged_files_in(folder, ".ftl", ignored)) try {
      if (rank_of_recorder(file)) nodes[node_file_of(folder, RecorderFile(file))].push_back(file);
    } catch (const Error&) {  // Damaged files stay as they are.
    }
  for (const auto& [node, files] : nodes) pack(files, false, true);
} catch (const std::exception&) {
}

bool recorder_has_ended(const fs::path& file) noexcept try {
  return is_node_file(file.parent_path()) || has_ended(RecorderFile(file));
} catch (const std::exception&) {
  return true;  // Nobody records into a damaged file.
}

}  // namespace farandole
