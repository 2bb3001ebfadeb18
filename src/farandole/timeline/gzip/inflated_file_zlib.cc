#include <algorithm>
#include <zlib.h>

#include "farandole/base/files/file_bytes.h"
#include "farandole/timeline/gzip/inflated_file.h"

namespace farandole {

struct InflatedFile::State {
  struct Close {
    void operator()(gzFile_s* file) const { gzclose_r(file); }
  };
  std::unique_ptr<gzFile_s, Close> file;
  std::string damage;
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
  return std::unique_ptr<InflatedFile>(new InflatedFile(std::move(state)));
}

std::size_t InflatedFile::read(char* into, std::size_t room) {
  constexpr std::size_t most = std::size_t{1} << 30;
  const int got = gzread(state_->file.get(), into, static_cast<unsigned>(std::min(room, most)));
  int error = Z_OK;
  const std::string why = gzerror(state_->file.get(), &error);
  if (error == Z_BUF_ERROR)
    state_->damage = "the gzip data is truncated";
  else if (error != Z_OK && error != Z_STREAM_END)
    state_->damage = "the gzip data is damaged (" + why + ")";
  return got > 0 ? static_cast<std::size_t>(got) : 0;
}

const std::string& InflatedFile::damage() const {
  return state_->damage;
}

}  // namespace farandole
