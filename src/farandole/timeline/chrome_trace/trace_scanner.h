// Splits a Chrome trace, compressed or not, into the texts of its events. Only one window of the
// trace is in memory.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/timeline/gzip/inflated_file.h"

namespace farandole {

// A sliding window over a file's uncompressed bytes. Compression with gzip is detected automatically.
class TraceWindow {
 public:
  static constexpr std::size_t padding = 32;

  // Throws: UserError if the file cannot be opened.
  explicit TraceWindow(const std::filesystem::path& file);

  // A byte 0 follows the window, and `padding` bytes behind the window are readable.
  const char* data() const { return buffer_.data() + begin_; }
  std::size_t size() const { return end_ - begin_; }
  std::uint64_t offset() const { return offset_; }  // of data() in the uncompressed stream
  void consume(std::size_t bytes);
  // Appends to the window, which may move. Returns false at the end of the readable stream.
  bool refill();
  // Why the stream ended early because of truncated or damaged gzip data; "" if it did not.
  const std::string& damage() const { return file_->damage(); }

 private:
  std::unique_ptr<InflatedFile> file_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t offset_ = 0;
  bool at_end_ = false;
};

struct RawEvent {
  // One JSON object or its damaged rest. It lies within the window, behind which there is a byte 0.
  std::string_view text;
  std::uint64_t offset = 0;  // in the uncompressed stream
};

// Accepts both forms of a trace: {"traceEvents":[…],…} with other keys before and after, and a bare array,
// which may lack its closing bracket.
class TraceScanner {
 public:
  // Throws: UserError if the file cannot be opened.
  // Throws: CorruptInput if the file contains no array of events.
  explicit TraceScanner(const std::filesystem::path& file);

  // Returns the next event, which is valid until the next call. Returns std::nullopt after the last undamaged
  // event; damage() then says whether this was the end of the trace.
  std::optional<RawEvent> next();
  // Returns the text from the next event on, as far as it is in the window. RawEvent::text may end
  // within an event. The caller must call take() with the number of bytes of whole events that it has
  // read, up to a closing bracket. Returns std::nullopt if next() must be called instead: at the end,
  // and if no object begins.
  std::optional<RawEvent> next_text();
  void take(std::size_t bytes) { pending_ = bytes; }
  // Rejects the event that next() returned as damaged. Reading continues at the next line that begins with an
  // object, even inside the event.
  void reject();
  // The texts of the keys "otherData" and "distributedInfo" (of PyTorch), or empty. They are complete
  // after the last event.
  const std::string& other_data() const { return other_data_; }
  const std::string& distributed_info() const { return distributed_info_; }
  const std::string& damage() const { return damage_; }
  std::uint64_t offset() const { return window_.offset(); }

 private:
  bool skip_space();  // false at the end of the stream
  char peek() const { return *window_.data(); }
  std::size_t value_end(std::size_t max_bytes);
  std::size_t next_line(std::size_t length) const;
  std::string take_value(std::size_t keep_bytes);
  void take_value_of(const std::string& key);
  bool find_events();
  void read_keys_behind();
  void stop(const std::string& why);
  bool begin_event();

  TraceWindow window_;
  std::string other_data_;
  std::string distributed_info_;
  std::string damage_;
  bool in_object_ = false;
  bool done_ = false;
  std::size_t pending_ = 0;  // bytes of what was returned last
};

}  // namespace farandole
