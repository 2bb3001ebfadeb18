#include "farandole/trainer/data/idx_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <string>

#include "farandole/base/error.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

struct Found {
  std::map<std::string, fs::path> train;  // The key is the name without .gz.
  std::map<std::string, fs::path> test;
};

// The files train*images-idx3-ubyte, t10k*images-idx3-ubyte and test*images-idx3-ubyte, and the
// same with .gz.
Found find_images(const fs::path& folder) {
  Found found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto name = entry.path().filename().string();
    const bool packed = name.ends_with(".gz");
    const auto plain = packed ? name.substr(0, name.size() - 3) : name;
    const bool train = plain.starts_with("train");
    const bool test = plain.starts_with("t10k") || plain.starts_with("test");
    if (!(train || test) || !plain.ends_with("images-idx3-ubyte") || !entry.is_regular_file()) continue;
    auto& files = train ? found.train : found.test;
    if (packed) {
      files.try_emplace(plain, entry.path());
    } else {
      files.insert_or_assign(plain, entry.path());
    }
  }
  return found;
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  text.replace(text.rfind(from), from.size(), to);
}

std::optional<IdxPair> pair_of(const fs::path& folder, const std::map<std::string, fs::path>& files,
                               const char* what) {
  if (files.empty()) return std::nullopt;
  if (files.size() > 1) {
    std::vector<std::string> names;
    for (const auto& [name, path] : files) names.push_back(path.filename().string());
    throw UserError(
        fmt::format("{}: several files of {} images: {}; keep one and move the others to another folder",
                    folder.string(), what, fmt::join(names, ", ")));
  }
  auto labels = files.begin()->first;
  replace(labels, "images-idx3", "labels-idx1");
  const auto& images = files.begin()->second;
  for (const auto* ending : {"", ".gz"}) {
    if (fs::is_regular_file(folder / (labels + ending))) return IdxPair{images, folder / (labels + ending)};
  }
  throw UserError(
      fmt::format("{}: there are no labels for {}; neither {} nor {}.gz exists in the same folder",
                  folder.string(), images.filename().string(), labels, labels));
}

}  // namespace

bool has_idx_images(const fs::path& folder) {
  const auto found = find_images(folder);
  return !found.train.empty() || !found.test.empty();
}

IdxFolder find_idx_files(const fs::path& folder) {
  if (!fs::is_directory(folder))
    throw UserError(fmt::format("{}: no such folder of images", folder.string()));
  const auto found = find_images(folder);
  const auto train = pair_of(folder, found.train, "training");
  if (!train) {
    throw UserError(fmt::format("{}: no training images; looked for train*-images-idx3-ubyte[.gz]{}",
                                folder.string(), found.test.empty() ? "" : ", and found test images only"));
  }
  return IdxFolder{*train, pair_of(folder, found.test, "test")};
}

LabelledImages read_idx_pair(const IdxPair& pair) {
  LabelledImages data{read_idx_images(pair.images), read_idx_labels(pair.labels)};
  if (data.images.count != static_cast<std::int64_t>(data.labels.size())) {
    throw CorruptInput(
        fmt::format("{}: {} labels (offset 4) for the {} images of {}; the files do not belong together",
                    pair.labels.string(), data.labels.size(), data.images.count, pair.images.string()));
  }
  return data;
}

}  // namespace farandole
