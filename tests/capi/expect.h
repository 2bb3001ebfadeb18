// For the tests of farandole/capi.h in C: ends the job with a line if a condition does not hold.
#pragma once

#include <farandole/capi.h>
#include <stdio.h>

#define EXPECT(condition)                                                                        \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      char text[512];                                                                            \
      snprintf(text, sizeof text, "%s:%d: %s: %s", __FILE__, __LINE__, #condition, fdl_error()); \
      fdl_abort(1, text);                                                                        \
    }                                                                                            \
  } while (0)
