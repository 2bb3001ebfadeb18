// Writes a diagnosis for scripts. A pure function.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>

#include "farandole/doctor/diagnosis.h"

namespace farandole {

// {"farandole_doctor": 1, "verdict": …, "cause": …, "rank": …, …}. Unknown values are null.
std::string diagnosis_json(const RunEvidence& run, const Diagnosis& diagnosis);

}  // namespace farandole
