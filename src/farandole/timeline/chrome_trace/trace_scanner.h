// Cuts a Chrome trace, compressed or not, into the texts of its events without holding more than one window
// of it. One object is used by one thread.
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

// A sliding window over a file's uncompressed bytes; gzip is told by content.
class TraceWindow {
 public:
  // Readable bytes behind the window's end, as simdjson wants them.
  static constexpr std::size_t padding = 64;

  // Throws UserError where the file cannot be opened.
  explicit TraceWindow(const std::filesystem::path& file);

  // The byte in front of it and the one behind it may be written, too.
  char* data() { return buffer_.data() + begin_; }
  const char* data() const { return buffer_.data() + begin_; }
  std::size_t size() const { return end_ - begin_; }
  std::uint64_t offset() const { return offset_; }  // of data(), in the uncompressed stream
  void consume(std::size_t bytes);
  // Appends to the window, which may move; false at the end of the readable stream.
  bool refill();
  // Why the stream ended early: truncated or damaged gzip data.
  const std::string& damage() const { return file_->damage(); }

 private:
  std::unique_ptr<InflatedFile> file_;
  std::vector<char> buffer_;
  std::size_t begin_ = 1;
  std::size_t end_ = 1;
  std::uint64_t offset_ = 0;
  bool at_end_ = false;
};

struct RawEvent {
  std::string_view text;     // one JSON object, or what damage has left of it, with TraceWindow::padding
                             // readable bytes behind it
  std::uint64_t offset = 0;  // in the uncompressed stream
};

// Both forms: {"traceEvents":[…],…} with other keys before and after, and a bare array, also one that is
// never closed.
class TraceScanner {
 public:
  // Throws UserError where the file cannot be opened, CorruptInput where it holds no array of events.
  explicit TraceScanner(const std::filesystem::path& file);

  // The next event, valid until the next call; nullopt after the last sound one: then damage() says whether
  // it was the end.
  std::optional<RawEvent> next();
  // The text from the next event on, as far as it is at hand (RawEvent::text may end within an event), for a
  // reader that tells by take() how much of it it has read: whole events, up to a closing bracket. nullopt as
  // for next_block().
  std::optional<RawEvent> next_text();
  void take(std::size_t bytes) { pending_ = bytes; }
  // Several whole events at once, as the JSON text of an array, valid until the next call. Where one of them
  // turns out not to be sound, resume_at() says from which on next() is to give them. nullopt where next()
  // must be asked: at the end, and where the events' bounds cannot be told at a glance.
  std::optional<RawEvent> next_block();
  // Goes back to byte `offset` of the block; next_block() gives nothing until the block is over.
  void resume_at(std::size_t offset);
  // The event that next() gave is not sound: go on where the next line begins an object, even inside of it.
  void reject();
  // The texts of the keys "otherData" and "distributedInfo" (of PyTorch), or empty; known after the last
  // event at the latest.
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
  std::size_t block_length() const;
  void uncover();

  std::filesystem::path file_;
  TraceWindow window_;
  std::string other_data_;
  std::string distributed_info_;
  std::string damage_;
  bool in_object_ = false;
  bool done_ = false;
  std::size_t pending_ = 0;      // bytes of the event or block given last
  std::optional<char> covered_;  // by the bracket that a block ends with
  std::uint64_t no_block_before_ = 0;
};

}  // namespace farandole
