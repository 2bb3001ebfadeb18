// The estimator: training on a table, as `farandole fit` does it.
#pragma once

#include "farandole/estimator/estimator.h"
