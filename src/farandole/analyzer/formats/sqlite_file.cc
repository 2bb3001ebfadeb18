#include "farandole/analyzer/formats/sqlite_file.h"

#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <memory>
#include <optional>
#include <sqlite3.h>
#include <unistd.h>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/file_bytes.h"
#include "farandole/base/owned_descriptor.h"
#include "farandole/timeline/gzip/inflated_file.h"

namespace farandole {
namespace {

struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};

bool is_gzip(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return stream.get() == 0x1f && stream.get() == 0x8b;
}

class TemporaryFile {
 public:
  TemporaryFile() : path_((std::filesystem::temp_directory_path() / "farandole-XXXXXX").string()) {
    file_ = OwnedDescriptor(::mkostemp(path_.data(), O_CLOEXEC));
    if (file_.get() < 0) throw system_error("create the temporary file", path_);
  }
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }
  int descriptor() const { return file_.get(); }

 private:
  std::string path_;
  OwnedDescriptor file_;
};

// SQLite must seek, so it reads a copy without compression.
void inflate(const std::filesystem::path& file, const TemporaryFile& copy) {
  const auto inflated = InflatedFile::open(file);
  if (!inflated) throw UserError("open " + file.string() + ": it cannot be read");
  std::vector<char> buffer(std::size_t{1} << 20);
  while (const auto got = inflated->read(buffer.data(), buffer.size()))
    write_bytes(copy.descriptor(), {buffer.data(), got}, copy.path());
  if (!inflated->damage().empty())
    throw CorruptInput("SQLite file " + file.string() + ": " + inflated->damage());
}

}  // namespace

std::int64_t SqliteFile::Row::integer(int column) const {
  return sqlite3_column_int64(statement_, column);
}

std::string_view SqliteFile::Row::text(int column) const {
  const auto* const bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (bytes == nullptr) return {};
  return {bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

SqliteFile::SqliteFile(const std::filesystem::path& path) : path_(path) {
  std::optional<TemporaryFile> copy;  // SQLite keeps it open after its name is removed
  if (is_gzip(path)) inflate(path, copy.emplace());
  if (sqlite3_open_v2(copy ? copy->path().c_str() : path.c_str(), &file_, SQLITE_OPEN_READONLY, nullptr) ==
      SQLITE_OK)
    return;
  const std::string why = file_ != nullptr ? sqlite3_errmsg(file_) : "out of memory";
  sqlite3_close(file_);
  throw UserError("open " + path_ + ": " + why);
}

SqliteFile::~SqliteFile() {
  sqlite3_close(file_);
}

void SqliteFile::fail() const {
  throw CorruptInput("SQLite file " + path_ + ": " + sqlite3_errmsg(file_));
}

bool SqliteFile::has_column(const std::string& table, const std::string& column) {
  bool found = false;
  query("SELECT name FROM pragma_table_info('" + table + "')",
        [&](const Row& row) { found |= row.text(0) == column; });
  return found;
}

void SqliteFile::query(const std::string& sql, const std::function<void(const Row&)>& take) {
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v2(file_, sql.c_str(), -1, &raw, nullptr) != SQLITE_OK) fail();
  const std::unique_ptr<sqlite3_stmt, Finalize> statement(raw);
  for (;;) {
    const int result = sqlite3_step(raw);
    if (result == SQLITE_DONE) return;
    if (result != SQLITE_ROW) fail();
    take(Row(raw));
  }
}

}  // namespace farandole
