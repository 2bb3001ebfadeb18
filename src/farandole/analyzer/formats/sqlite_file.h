// An SQLite file to read from. An object is used by one thread at a time.
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
  // One row of an answer, valid during the call. Columns count from 0; what is NULL is 0 or "".
  class Row {
   public:
    explicit Row(sqlite3_stmt* statement) : statement_(statement) {}
    std::int64_t integer(int column) const;
    std::string_view text(int column) const;

   private:
    sqlite3_stmt* statement_;
  };

  // Gzip or not. Throws UserError where the file cannot be opened, CorruptInput for damaged gzip data.
  explicit SqliteFile(const std::filesystem::path& path);
  ~SqliteFile();
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;

  bool has_column(const std::string& table, const std::string& column);
  // Throws CorruptInput with SQLite's own words.
  void query(const std::string& sql, const std::function<void(const Row&)>& take);

 private:
  [[noreturn]] void fail() const;

  std::string path_;
  sqlite3* file_ = nullptr;
};

}  // namespace farandole
