// What supports a diagnosis, and what else is wrong: lines for people. A pure function.
#pragma once

#include <string>
#include <vector>

#include "farandole/doctor/diagnosis.h"

namespace farandole {

std::vector<std::string> find_evidence(const RunEvidence& run, const Diagnosis& diagnosis);

}  // namespace farandole
