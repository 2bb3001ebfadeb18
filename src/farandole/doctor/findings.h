// What a diagnosis is based on, and what to do next.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>
#include <vector>

#include "farandole/doctor/diagnosis.h"
#include "farandole/doctor/run_evidence.h"

namespace farandole {

// One option or command per line.
std::vector<std::string> advise(const RunEvidence& run, const Diagnosis& diagnosis);
// The evidence for the diagnosis, and other problems of the run, as lines for users.
std::vector<std::string> find_evidence(const RunEvidence& run, const Diagnosis& diagnosis);

}  // namespace farandole
