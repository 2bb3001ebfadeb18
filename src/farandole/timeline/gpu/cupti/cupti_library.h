// The functions of CUPTI that Farandole calls. They are loaded at run time, so that programs also start
// on nodes without CUDA.
// Thread safety: const methods may run concurrently; others need external synchronization.
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

  // Loads the library of the major version for which this was compiled. It stays loaded until the process
  // ends. Returns why it cannot be loaded, or "".
  std::string load();
  std::string describe(CUptiResult result) const;
};

}  // namespace farandole
