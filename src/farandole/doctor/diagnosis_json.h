// A diagnosis for scripts. A pure function.
#pragma once

#include <string>

#include "farandole/doctor/diagnosis.h"

namespace farandole {

// {"farandole_doctor": 1, "verdict": …, "cause": …, "rank": …, …}; what is not known is null.
std::string diagnosis_json(const RunEvidence& run, const Diagnosis& diagnosis);

}  // namespace farandole
