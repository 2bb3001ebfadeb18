// Writes a diagnosis for users: verdict, ranks, evidence, advice. A pure function.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>

#include "farandole/doctor/diagnosis.h"

namespace farandole {

std::string diagnosis_text(const RunEvidence& run, const Diagnosis& diagnosis);

}  // namespace farandole
