// Everything a C++ program needs to analyze runs. Link Farandole::analyzer.
#pragma once

#include "farandole/analyzer/analysis.h"
#include "farandole/base/error.h"
