#include "farandole/estimator/models/model_file.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_bytes = std::size_t{16} << 20;  // Of a pickle or a folder of an archive.

// A file of which parts are read. A part that is not there is shorter.
class PartlyRead {
 public:
  explicit PartlyRead(const fs::path& file) : file_(file.string()), fd_(open_regular_file(file)) {
    std::error_code ignored;
    size_ = fd_.get() < 0 ? 0 : fs::file_size(file, ignored);
  }
  std::uint64_t size() const { return size_; }
  std::string at(std::uint64_t offset, std::uint64_t bytes) const {
    if (offset >= size_) return "";
    std::string text(std::min({bytes, size_ - offset, std::uint64_t{most_bytes}}), '\0');
    text.resize(read_bytes(fd_.get(), offset, std::as_writable_bytes(std::span(text)), file_));
    return text;
  }

 private:
  std::string file_;
  OwnedDescriptor fd_;
  std::uint64_t size_ = 0;
};

// A little-endian number; 0 behind the end.
template <class T>
T number_at(std::string_view text, std::size_t at) {
  T value{};
  if (at + sizeof value <= text.size()) std::memcpy(&value, text.data() + at, sizeof value);
  return value;
}

// The entries of a zip archive, as far as PyTorch uses the format.
class ZipArchive {
 public:
  explicit ZipArchive(const PartlyRead& file) : file_(file) {
    constexpr std::size_t end_bytes = 22, longest_comment = 65535;
    const auto tail_bytes = std::min<std::uint64_t>(file.size(), end_bytes + longest_comment);
    const auto tail = file.at(file.size() - tail_bytes, tail_bytes);
    const auto end = tail.rfind(std::string_view("PK\5\6"));
    if (end == tail.npos) return;
    std::uint64_t bytes = number_at<std::uint32_t>(tail, end + 12),
                  offset = number_at<std::uint32_t>(tail, end + 16);
    constexpr std::size_t locator_bytes = 20;
    if (end >= locator_bytes &&
        std::string_view(tail).substr(end - locator_bytes, 4) == std::string_view("PK\6\7")) {
      const auto record = file.at(number_at<std::uint64_t>(tail, end - locator_bytes + 8), 56);
      bytes = number_at<std::uint64_t>(record, 40);
      offset = number_at<std::uint64_t>(record, 48);
    }
    const auto folder = file.at(offset, bytes);
    for (std::size_t at = 0; std::string_view(folder).substr(at, 4) == std::string_view("PK\1\2");) {
      const auto name_bytes = number_at<std::uint16_t>(folder, at + 28);
      entries_.push_back({folder.substr(std::min(at + 46, folder.size()), name_bytes),
                          number_at<std::uint32_t>(folder, at + 42),
                          number_at<std::uint32_t>(folder, at + 20),
                          number_at<std::uint16_t>(folder, at + 10) != 0});
      at += 46u + name_bytes + number_at<std::uint16_t>(folder, at + 30) +
            number_at<std::uint16_t>(folder, at + 32);
    }
  }

  // Whether a path has this part, at its begin or behind a '/'.
  bool has(std::string_view part) const {
    return std::ranges::any_of(entries_, [&](const Entry& entry) { return has_part(entry.name, part); });
  }
  std::optional<std::string> read(std::string_view name) const {
    for (const auto& entry : entries_)
      if (!entry.compressed && has_part(entry.name, name) && entry.name.ends_with(name)) {
        const auto header = file_.at(entry.offset, 30);
        return file_.at(
            entry.offset + 30 + number_at<std::uint16_t>(header, 26) + number_at<std::uint16_t>(header, 28),
            entry.bytes);
      }
    return std::nullopt;
  }

 private:
  struct Entry {
    std::string name;
    std::uint64_t offset, bytes;
    bool compressed;
  };
  static bool has_part(const std::string& name, std::string_view part) {
    const auto at = name.find(part);
    return at == 0 || (at != name.npos && name[at - 1] == '/');
  }
  const PartlyRead& file_;
  std::vector<Entry> entries_;
};

// What a pickle is made of, read without running it (the opcodes are those of Python's pickletools).
struct Pickle {
  std::string top;                      // "dict", "list" or the class of the outermost object.
  std::vector<std::string> globals;     // Classes and functions that it names.
  std::size_t end = std::string::npos;  // Behind it; npos if it does not end.

  bool names(std::string_view what) const {
    return std::ranges::any_of(globals, [&](const auto& name) { return name.find(what) != name.npos; });
  }
};

Pickle scan_pickle(std::string_view text, std::size_t at) {
  Pickle pickle;
  std::string last, before_last;              // Strings, for STACK_GLOBAL.
  std::map<std::uint64_t, std::string> memo;  // Strings that the pickle uses again.
  std::uint64_t memoized = 0;
  bool ends_with_string = false;  // The last object is `last`.
  const auto push = [&](std::string word) {
    before_last = std::exchange(last, std::move(word));
    ends_with_string = true;
  };
  const auto remember = [&](std::uint64_t place) {
    if (ends_with_string) memo[place] = last;
    ++memoized;
  };
  const auto recall = [&](std::uint64_t place) {
    const auto known = memo.find(place);
    ends_with_string = known != memo.end();
    if (ends_with_string) push(std::string(known->second));
  };
  const auto found = [&](const std::string& name, bool is_global) {
    if (pickle.top.empty()) pickle.top = name;
    if (is_global) pickle.globals.push_back(name);
  };
  const auto line = [&] {
    const auto end = std::min(text.find('\n', at), text.size());
    const auto word = std::string(text.substr(at, end - at));
    at = end + 1;
    return word;
  };
  const auto counted = [&](std::uint64_t bytes) {
    const auto word = std::string(text.substr(std::min(at, text.size()), bytes));
    at = bytes > text.size() ? text.size() : at + bytes;
    push(word);
  };
  constexpr std::string_view alone("(.012NRbad}et)]losuQ\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x97\x98"),
      with_line("ILFSVPgp");
  while (at < text.size()) {
    const char code = text[at++];
    if (code == '.') {
      pickle.end = at;
      break;
    }
    if (code == '\x94') {
      remember(memoized);
      continue;
    }
    if (code == 'q' || code == 'r' || code == 'h' || code == 'j') {
      const bool is_byte = code == 'q' || code == 'h';
      const std::uint64_t place =
          is_byte ? number_at<std::uint8_t>(text, at) : number_at<std::uint32_t>(text, at);
      at += is_byte ? 1 : 4;
      code == 'q' || code == 'r' ? remember(place) : recall(place);
      continue;
    }
    ends_with_string = false;
    if (code == '}') found("dict", false);
    if (code == ']') found("list", false);
    if (alone.find(code) != alone.npos) continue;
    if (with_line.find(code) != with_line.npos) {
      line();
    } else if (code == 'c' || code == 'i') {
      const auto module = line();
      found(module + "." + line(), true);
    } else if (code == '\x93') {
      found(before_last + "." + last, true);
    } else if (code == 'K' || code == '\x80' || code == '\x82') {
      at += 1;
    } else if (code == 'M' || code == '\x83') {
      at += 2;
    } else if (code == 'J' || code == '\x84') {
      at += 4;
    } else if (code == 'G' || code == '\x95') {
      at += 8;
    } else if (code == 'U' || code == 'C' || code == '\x8c' || code == '\x8a') {
      const auto bytes = number_at<std::uint8_t>(text, at);
      at += 1;
      counted(bytes);
    } else if (code == 'T' || code == 'X' || code == 'B' || code == '\x8b') {
      const auto bytes = number_at<std::uint32_t>(text, at);
      at += 4;
      counted(bytes);
    } else if (code == '\x8d' || code == '\x8e' || code == '\x96') {
      const auto bytes = number_at<std::uint64_t>(text, at);
      at += 8;
      counted(bytes);
    } else {
      break;  // No opcode.
    }
  }
  return pickle;
}

constexpr const char* load_weights = "load them into the model in Python, and save that with";

std::optional<ModelFileKind> kind_of_pickle(const Pickle& pickle) {
  constexpr std::string_view of_data[] = {"collections.", "torch._utils.", "torch.storage.",
                                          "_codecs.",     "numpy",         "builtins."};
  const auto is_object = [&](const std::string& name) {
    const bool is_plain =
        name.starts_with("torch.") && name.find('.', 6) == name.npos;  // torch.FloatStorage, torch.Size
    return !is_plain && std::ranges::none_of(of_data, [&](auto prefix) { return name.starts_with(prefix); });
  };
  const auto object = std::ranges::find_if(pickle.globals, is_object);
  const bool is_dict = pickle.top == "dict" || pickle.top == "collections.OrderedDict";
  if (pickle.top.empty()) return std::nullopt;
  if (object != pickle.globals.end()) {
    if (is_dict || pickle.top == "list")
      return ModelFileKind{fmt::format("a pickled {} with Python objects ({})", pickle.top, *object),
                           "load the model in Python, and save it with"};
    return ModelFileKind{fmt::format("a pickled nn.Module ({}), which needs its Python code", pickle.top),
                         "load it in Python, and save it with"};
  }
  if (!pickle.names("torch._utils._rebuild"))
    return ModelFileKind{fmt::format("a pickled {} without a model", pickle.top),
                         "save the model in Python with"};
  if (!is_dict)
    return ModelFileKind{"a file of tensors without a model (torch.save)", "save the model in Python with"};
  if (pickle.top == "dict")
    return ModelFileKind{"a dict with tensors, such as a checkpoint: weights without the model",
                         load_weights};
  return ModelFileKind{"a state_dict: weights without the model", load_weights};
}

std::optional<ModelFileKind> kind_of_archive(const PartlyRead& file) {
  const ZipArchive zip(file);
  if (zip.has("constants.pkl") || zip.has("code/")) return std::nullopt;  // TorchScript, which is damaged.
  if (zip.has("serialized_exported_program.json"))
    return ModelFileKind{"an archive of torch.export of PyTorch 2.7 or older",
                         "export the model with PyTorch 2.11, or save it with"};
  const auto pickle = zip.read("data.pkl");
  return pickle ? kind_of_pickle(scan_pickle(*pickle, 0)) : std::nullopt;
}

// Before PyTorch 1.6: a number, the version and a description of the system come before the
// object, each pickled.
std::optional<ModelFileKind> kind_of_old_file(const PartlyRead& file) {
  const auto text = file.at(0, most_bytes);
  auto pickle = scan_pickle(text, 0);
  for (int before = 0; before < 3 && pickle.end != std::string::npos; ++before)
    pickle = scan_pickle(text, pickle.end);
  return kind_of_pickle(pickle);
}

}  // namespace

std::optional<ModelFileKind> kind_of_model_file(const fs::path& path) {
  constexpr std::string_view old_number(
      "\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.");  // PyTorch's, behind the protocol.
  constexpr std::size_t tar_mark = 257;
  const PartlyRead file(path);
  const auto start = file.at(0, 512);
  const auto begins = [&](std::string_view with, std::size_t at = 0) {
    return std::string_view(start).substr(std::min(at, start.size())).starts_with(with);
  };
  if (begins("PK\3\4")) return kind_of_archive(file);
  if (begins("\x80") && begins(old_number, 2)) return kind_of_old_file(file);
  if (begins("\x80")) return kind_of_pickle(scan_pickle(file.at(0, most_bytes), 0));
  if (begins("ustar", tar_mark))
    return ModelFileKind{"a tar archive of an early PyTorch", "load the model in Python, and save it with"};
  if (begins("\x89HDF\r\n\x1a\n"))
    return ModelFileKind{"an HDF5 file, which may hold weights but no TorchScript", load_weights};
  const auto header = number_at<std::uint64_t>(start, 0);
  if (begins("{", 8) && header >= 2 && header <= file.size() - 8)
    return ModelFileKind{"a safetensors file: weights without the model", load_weights};
  // ONNX: protobuf with the version first, and then the producer's name, the domain or the graph.
  if (begins("\x08") && start.size() > 3 && start[1] > 0 && start[1] < 32 &&
      std::string_view("\x12\x1a\x22\x3a").find(start[2]) != std::string_view::npos)
    return ModelFileKind{"an ONNX file", "save the model from which it was made in PyTorch with"};
  return std::nullopt;
}

bool is_exported_archive(const fs::path& path) {
  const PartlyRead file(path);
  const auto start = file.at(0, 512);
  if (!start.starts_with("PK\3\4")) return false;
  constexpr std::size_t name_at = 30, name_bytes_at = 26;
  const auto first = std::string_view(start).substr(std::min(name_at, start.size()),
                                                    number_at<std::uint16_t>(start, name_bytes_at));
  const ZipArchive zip(file);
  return first.find("/data/weights/") != first.npos || first.find("/data/constants/") != first.npos ||
         (zip.has("archive_format") && zip.has("models/"));
}

void refuse_other_models(const fs::path& file, const char* what) {
  if (const auto kind = kind_of_model_file(file))
    throw UserError(fmt::format("{} is {}; {} torch.jit.script({}).save(FILE)", file.string(), kind->name,
                                kind->remedy, what));
}

}  // namespace farandole
