// A diagnosis for people: verdict, ranks, evidence, what to do. A pure function.
#pragma once

#include <string>

#include "farandole/doctor/diagnosis.h"

namespace farandole {

std::string diagnosis_text(const RunEvidence& run, const Diagnosis& diagnosis);

}  // namespace farandole
