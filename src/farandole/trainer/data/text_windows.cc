#include "farandole/trainer/data/text_windows.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <torch/types.h>
#include <utility>
#include <xxhash.h>

#include "farandole/base/error.h"
#include "farandole/trainer/data/labelled_samples.h"

namespace farandole {

TextWindows::TextWindows(std::shared_ptr<const std::vector<std::uint8_t>> text,
                         std::span<const std::uint8_t> stretch, std::int64_t context)
    : text_(std::move(text)),
      stretch_(stretch),
      context_(context),
      size_((static_cast<std::int64_t>(stretch.size()) - 1) / context) {}

Batch TextWindows::get(std::span<const std::int64_t> indices) const {
  const auto n = static_cast<std::int64_t>(indices.size());
  auto x = torch::empty({n, context_}, torch::kInt64);
  auto y = torch::empty({n, context_}, torch::kInt64);
  auto* to_x = x.data_ptr<std::int64_t>();
  auto* to_y = y.data_ptr<std::int64_t>();
  for (const auto index : indices) {
    TORCH_CHECK_INDEX(index >= 0 && index < size_, "sample ", index, " of ", size_);
    const auto* from = stretch_.data() + index * context_;
    to_x = std::copy_n(from, context_, to_x);
    to_y = std::copy_n(from + 1, context_, to_y);
  }
  return {x, y};
}

DataSplit split_text(std::vector<std::uint8_t> bytes, std::int64_t context, double held_out,
                     const std::string& source) {
  if (context < 1) throw UserError(fmt::format("--context is {}; it must be at least 1", context));
  const auto size = static_cast<std::int64_t>(bytes.size());
  const auto cut = first_part(size, held_out, source);
  if (std::min(cut, size - cut) < context + 1) {
    throw UserError(
        fmt::format("{}: {} bytes are too few: {} to train on and {} held out, and a sample needs {}; use "
                    "more text, or a smaller --context",
                    source, size, cut, size - cut, context + 1));
  }
  const auto text = std::make_shared<const std::vector<std::uint8_t>>(std::move(bytes));
  const std::span all(*text);
  DataSplit split;
  split.train = std::make_unique<TextWindows>(text, all.first(static_cast<std::size_t>(cut)), context);
  split.held_out = std::make_unique<TextWindows>(text, all.subspan(static_cast<std::size_t>(cut)), context);
  split.shape = {.input = {context}, .classes = 256, .text = true};
  split.source = source;
  split.hash = XXH3_64bits(text->data(), text->size());
  return split;
}

namespace {

namespace fs = std::filesystem;

// Files come before links to them, so that each file is listed under its own name.
std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files, links;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::error_code dangling;
    if (entry.path().filename().string().front() == '.' || !entry.is_regular_file(dangling)) continue;
    (entry.is_symlink() ? links : files).push_back(entry.path());
  }
  std::sort(links.begin(), links.end());
  std::set<fs::path> taken;
  for (const auto& file : files) taken.insert(fs::canonical(file));
  for (const auto& link : links) {
    if (taken.insert(fs::canonical(link)).second) files.push_back(link);
  }
  std::sort(files.begin(), files.end());
  return files;
}

void append(std::vector<std::uint8_t>& bytes, const fs::path& file) {
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  const auto size = stream.tellg();
  if (!stream || size < 0)
    throw UserError(fmt::format("cannot read {}: check its permissions", file.string()));
  const auto before = bytes.size();
  bytes.resize(before + static_cast<std::size_t>(size));
  stream.seekg(0);
  stream.read(reinterpret_cast<char*>(bytes.data() + before), size);
  if (stream.gcount() != size) {
    throw Error(fmt::format("read {}: got {} of {} bytes; did the file change during the read?",
                            file.string(), stream.gcount(), static_cast<std::int64_t>(size)));
  }
}

}  // namespace

Text read_text(const fs::path& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::exists(status)) throw UserError(fmt::format("{}: no such file or folder", path.string()));
  if (!fs::is_directory(status) && !fs::is_regular_file(status)) {
    throw UserError(fmt::format("{}: neither a file nor a folder of files", path.string()));
  }
  const auto files = fs::is_directory(status) ? files_of(path) : std::vector{path};
  Text text;
  for (const auto& file : files) append(text.bytes, file);
  text.files = static_cast<int>(files.size());
  if (text.bytes.empty())
    throw UserError(
        fmt::format("{}: there is no text in it; name a file or a folder of files", path.string()));
  return text;
}

}  // namespace farandole
