// The two lanes of tests: tools/test runs the same input each time, tools/soak new input in each round and
// more of it.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdlib>

namespace farandole {

// The seed of a test's random input: `own`, or in the soak lane another one in
// each round (FARANDOLE_TEST_SEED).
inline unsigned seed(unsigned own) {
  const char* const round = std::getenv("FARANDOLE_TEST_SEED");
  return round == nullptr ? own : own + 1'000'003u * static_cast<unsigned>(std::atoi(round));
}

// How often a test repeats something: `usual` times, in the soak lane `soak` times.
inline int rounds(int usual, int soak) {
  return std::getenv("FARANDOLE_TEST_SEED") == nullptr ? usual : soak;
}

}  // namespace farandole
