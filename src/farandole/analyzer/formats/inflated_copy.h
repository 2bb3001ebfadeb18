// A gzipped SQLite file unpacked, since SQLite must seek in it. Used by one thread.
#pragma once

#include <filesystem>
#include <string>

#include "farandole/base/owned_descriptor.h"

namespace farandole {

bool is_gzip(const std::filesystem::path& file);

// In the folder for temporary files; removed with the object: who has opened it by then reads on.
class InflatedCopy {
 public:
  // Throws UserError where `file` cannot be opened, CorruptInput where its gzip data is damaged.
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
