// Evidence for a diagnosis, and other problems of the run, as lines for users. A pure function.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>
#include <vector>

#include "farandole/doctor/diagnosis.h"

namespace farandole {

std::vector<std::string> find_evidence(const RunEvidence& run, const Diagnosis& diagnosis);

}  // namespace farandole
