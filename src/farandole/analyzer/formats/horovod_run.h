// Reads a Horovod timeline: one file of the coordinator, whose NEGOTIATE spans say when each rank was ready.
// Usable from any thread.
#pragma once

#include <filesystem>

#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// Every rank gets the collectives that it was ready for, without the queue and the copies
// around them; nothing is known
// of what the ranks compute. Throws CorruptInput where no tensor was negotiated.
RunModel read_horovod(const std::filesystem::path& file);

}  // namespace farandole
