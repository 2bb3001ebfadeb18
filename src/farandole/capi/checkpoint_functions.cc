// The checkpoints of farandole/capi.h.
#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "farandole/base/error.h"
#include "farandole/base/text/json.h"
#include "farandole/capi.h"
#include "farandole/capi/process_job.h"
#include "farandole/checkpoint/checkpoint_file.h"
#include "farandole/checkpoint/snapshot.h"
#include "farandole/job/run/run_directory.h"

namespace farandole::capi {
namespace {

Snapshot& checkpoint_of(void* checkpoint) {
  if (checkpoint == nullptr) throw UserError("the checkpoint is NULL; make it with fdl_checkpoint_create()");
  return *static_cast<Snapshot*>(checkpoint);
}

}  // namespace
}  // namespace farandole::capi

using namespace farandole;
using capi::attempt;

int fdl_checkpoint_create(int64_t step, int64_t epoch, void** checkpoint) {
  return attempt([&] {
    auto snapshot = std::make_unique<Snapshot>();
    snapshot->step = step;
    snapshot->epoch = epoch;
    snapshot->world_size = fdl_size();
    snapshot->config = "{}";
    snapshot->versions = json_text(library_versions());
    snapshot->score = score_unknown;
    *checkpoint = snapshot.release();
  });
}

int fdl_checkpoint_add(void* checkpoint, const char* path, int dtype, int dimensions, const int64_t* shape,
                       const void* data) {
  return attempt([&] {
    auto& snapshot = capi::checkpoint_of(checkpoint);
    const auto type = capi::dtype_of(dtype);
    if (!type) throw UserError(std::string(path) + " has no element type of fdl_dtype");
    Array array{path, *type, {shape, shape + dimensions}, {}};
    if (path[0] != '/' || std::ranges::any_of(array.shape, [](auto size) { return size < 0; }))
      throw UserError(std::string("the array ") + path +
                      " needs a path that begins with / and sizes of 0 or more");
    if (snapshot.find(path) != nullptr) throw UserError(std::string(path) + " is in the checkpoint twice");
    array.bytes.resize(array.count() * size_of(array.dtype));
    if (!array.bytes.empty()) std::memcpy(array.bytes.data(), data, array.bytes.size());
    snapshot.arrays.push_back(std::move(array));
  });
}

int fdl_checkpoint_write(void* checkpoint, const char* file) {
  return attempt([&] { write_checkpoint(file, capi::checkpoint_of(checkpoint)); });
}

int fdl_checkpoint_open(const char* file, void** checkpoint) {
  return attempt([&] { *checkpoint = std::make_unique<Snapshot>(read_checkpoint(file)).release(); });
}

const void* fdl_checkpoint_array(void* checkpoint, const char* path, int* dtype, size_t* bytes) {
  if (checkpoint == nullptr) return nullptr;
  const auto* const array = capi::checkpoint_of(checkpoint).find(path);
  if (array == nullptr) return nullptr;
  if (dtype != nullptr) *dtype = static_cast<int>(array->dtype);
  if (bytes != nullptr) *bytes = array->bytes.size();
  return array->bytes.data();
}

void fdl_checkpoint_free(void* checkpoint) {
  delete static_cast<Snapshot*>(checkpoint);
}
