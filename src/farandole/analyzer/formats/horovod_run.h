// Reads a Horovod timeline: one file of the coordinator. Its NEGOTIATE spans record when each rank was ready.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>

#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// Every rank gets the collectives for which it was ready, without the queue and the copies around them. The
// compute of the ranks is unknown.
// Throws: CorruptInput if no tensor was negotiated.
RunModel read_horovod(const std::filesystem::path& file);

}  // namespace farandole
