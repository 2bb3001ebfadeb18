// An SQLite file that is open for reading.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace farandole {

class SqliteFile {
 public:
  // One row of a result, valid only during the call. Columns count from 0. NULL is returned as 0 or "".
  class Row {
   public:
    explicit Row(sqlite3_stmt* statement) : statement_(statement) {}
    std::int64_t integer(int column) const;
    std::string_view text(int column) const;

   private:
    sqlite3_stmt* statement_;
  };

  // The file may be plain or gzip.
  // Throws: UserError if the file cannot be opened; CorruptInput if its gzip data is damaged.
  explicit SqliteFile(const std::filesystem::path& path);
  ~SqliteFile();
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;

  bool has_column(const std::string& table, const std::string& column);
  // Throws: CorruptInput with the message of SQLite.
  void query(const std::string& sql, const std::function<void(const Row&)>& take);

 private:
  [[noreturn]] void fail() const;

  std::string path_;
  sqlite3* file_ = nullptr;
};

}  // namespace farandole
