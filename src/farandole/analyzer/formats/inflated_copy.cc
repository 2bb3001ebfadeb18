#include "farandole/analyzer/formats/inflated_copy.h"

#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <unistd.h>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/file_bytes.h"
#include "farandole/timeline/gzip/inflated_file.h"

namespace farandole {

bool is_gzip(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return stream.get() == 0x1f && stream.get() == 0x8b;
}

InflatedCopy::Place::Place() : path((std::filesystem::temp_directory_path() / "farandole-XXXXXX").string()) {
  file = OwnedDescriptor(::mkostemp(path.data(), O_CLOEXEC));
  if (file.get() < 0) throw system_error("create the temporary file", path);
}

InflatedCopy::Place::~Place() {
  ::unlink(path.c_str());
}

InflatedCopy::InflatedCopy(const std::filesystem::path& file) {
  const auto inflated = InflatedFile::open(file);
  if (!inflated) throw UserError("open " + file.string() + ": it cannot be read");
  std::vector<char> buffer(std::size_t{1} << 20);
  while (const auto got = inflated->read(buffer.data(), buffer.size()))
    write_bytes(place_.file.get(), {buffer.data(), got}, path());
  if (!inflated->damage().empty())
    throw CorruptInput("SQLite file " + file.string() + ": " + inflated->damage());
}

}  // namespace farandole
