// The installed examples with LibTorch as one program, because LibTorch's header takes 20 s to parse.
#include <cstdlib>
#include <farandole/estimator.h>
#include <farandole/farandole.h>
#include <filesystem>
#include <iostream>

#include "called_by_name.h"

#define main example_launch
#include "install/examples/launch.cc"
#undef main
#define main example_recipe
#include "install/examples/recipe.cc"
#undef main
#define main example_estimator
#include "install/examples/estimator.cc"
#undef main

int main(int argc, char** argv) {
  return farandole::call_by_name({{"example_launch", example_launch},
                                  {"example_recipe", example_recipe},
                                  {"example_estimator", example_estimator}},
                                 argc, argv);
}
