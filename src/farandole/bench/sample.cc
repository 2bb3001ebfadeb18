#include "farandole/bench/sample.h"

#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {

double Sample::quantile(double fraction) const {
  return farandole::quantile(us, fraction);
}

}  // namespace farandole
