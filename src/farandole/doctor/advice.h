// Advice after a diagnosis: one option or command per line. A pure function.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>
#include <vector>

#include "farandole/doctor/diagnosis.h"

namespace farandole {

std::vector<std::string> advise(const RunEvidence& run, const Diagnosis& diagnosis);

}  // namespace farandole
