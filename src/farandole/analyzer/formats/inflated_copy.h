// A decompressed copy of a gzipped SQLite file. The copy is needed because SQLite must seek in the file.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <filesystem>
#include <string>

#include "farandole/base/owned_descriptor.h"

namespace farandole {

bool is_gzip(const std::filesystem::path& file);

// The copy is in the folder for temporary files and is deleted with the object. A process that has opened it
// can continue to read it.
class InflatedCopy {
 public:
  // Throws: UserError if `file` cannot be opened; CorruptInput if its gzip data is damaged.
  explicit InflatedCopy(const std::filesystem::path& file);
  const std::string& path() const { return place_.path; }

 private:
  struct Place {
    Place();
    ~Place();
    std::string path;
    OwnedDescriptor file;
  };
  Place place_;
};

}  // namespace farandole
