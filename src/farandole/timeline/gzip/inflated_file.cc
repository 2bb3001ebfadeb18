#include "farandole/timeline/gzip/inflated_file.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>
#include <zlib.h>

#include "farandole/base/files/file_bytes.h"
#include "farandole/base/process/quiet_thread.h"

namespace farandole {

// A helper thread uncompresses gzip data up to two blocks ahead of the reader, because zlib takes longer than
// most readers do. Other files are read directly.
struct InflatedFile::State {
  struct Close {
    void operator()(gzFile_s* open_file) const { gzclose_r(open_file); }
  };

  ~State() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    changed.notify_all();
    if (helper.joinable()) helper.join();
  }

  void run() {
    for (bool over = false; !over; changed.notify_all()) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return made < taken + blocks.size() || stop; });
      if (stop) return;
      auto& block = blocks[made % blocks.size()];
      lock.unlock();
      block.resize(block_bytes);
      block.resize(read_now(block.data(), block_bytes));
      over = block.size() < block_bytes;
      lock.lock();
      ++made;
    }
  }

  std::size_t read_now(char* into, std::size_t room) {
    constexpr std::size_t most = std::size_t{1} << 30;
    const int got = gzread(file.get(), into, static_cast<unsigned>(std::min(room, most)));
    int error = Z_OK;
    const std::string why = gzerror(file.get(), &error);
    if (error == Z_BUF_ERROR)
      found = "the gzip data is truncated";
    else if (error != Z_OK && error != Z_STREAM_END)
      found = "the gzip data is damaged (" + why + ")";
    return got > 0 ? static_cast<std::size_t>(got) : 0;
  }

  // Returns 0 only at the end.
  std::size_t take(char* into, std::size_t room) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return made > taken; });
    const auto& block = blocks[taken % blocks.size()];
    const auto count = std::min(room, block.size() - used);
    std::copy_n(block.data() + used, count, into);
    used += count;
    // The last block, which is not full, stays.
    if (used == block_bytes) {
      used = 0;
      ++taken;
      changed.notify_all();
    }
    return count;
  }

  static constexpr std::size_t block_bytes = std::size_t{256} << 10;
  std::unique_ptr<gzFile_s, Close> file;
  std::string found;     // why the bytes end early; read it only behind the last block
  std::string damage;    // the same for the user
  std::size_t used = 0;  // bytes of the oldest block
  std::mutex mutex;      // protects the members below; a block belongs to the reader from `taken` to `made`
  std::condition_variable changed;
  std::array<std::vector<char>, 2> blocks;
  std::size_t made = 0, taken = 0;  // blocks
  bool stop = false;
  std::thread helper;
};

InflatedFile::InflatedFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
InflatedFile::~InflatedFile() = default;

std::unique_ptr<InflatedFile> InflatedFile::open(const std::filesystem::path& path) {
  auto state = std::make_unique<State>();
  auto opened = open_regular_file(path);
  if (opened.get() < 0) return nullptr;
  state->file.reset(gzdopen(opened.release(), "rb"));
  if (state->file == nullptr) return nullptr;
  gzbuffer(state->file.get(), 128 << 10);
  try {
    if (!gzdirect(state->file.get())) state->helper = start_quiet_thread([own = state.get()] { own->run(); });
  } catch (const std::system_error&) {  // Without another thread, this one does the work.
  }
  return std::unique_ptr<InflatedFile>(new InflatedFile(std::move(state)));
}

std::size_t InflatedFile::read(char* into, std::size_t room) {
  std::size_t got = 0;
  for (std::size_t count = 1; got < room && count > 0; got += count)
    count = state_->helper.joinable() ? state_->take(into + got, room - got)
                                      : state_->read_now(into + got, room - got);
  if (got < room) state_->damage = state_->found;
  return got;
}

const std::string& InflatedFile::damage() const {
  return state_->damage;
}

}  // namespace farandole
