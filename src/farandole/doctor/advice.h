// What to do after a diagnosis: an option or a command a line. A pure function.
#pragma once

#include <string>
#include <vector>

#include "farandole/doctor/diagnosis.h"

namespace farandole {

std::vector<std::string> advise(const RunEvidence& run, const Diagnosis& diagnosis);

}  // namespace farandole
