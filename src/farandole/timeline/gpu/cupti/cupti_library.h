// The functions of CUPTI that Farandole calls, found when it runs: programs start on nodes without CUDA too.
// Usable from any thread once loaded.
#pragma once

#include <cupti.h>
#include <string>

namespace farandole {

struct CuptiLibrary {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityRegisterTimestampCallback) register_timestamp = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;

  // Of the major version whose records this was compiled for; stays loaded to the end of the process. Returns
  // why it cannot be had, or "".
  std::string load();
  std::string describe(CUptiResult result) const;
};

}  // namespace farandole
