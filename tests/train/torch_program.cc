// The trainings that scripts start, as one program because LibTorch's header takes 20 s to parse.
#include "train/training_program.h"

#include <cstdio>
#include <map>
#include <string_view>

int main(int argc, char** argv) {
  const std::map<std::string_view, int (*)(int, char**)> trainings = {
      {"joining", joining}, {"straggling", straggling}, {"paced", paced_training}};
  const auto found = trainings.find(argc > 1 ? argv[1] : "");
  if (found == trainings.end())
    return std::fputs("training_program: the argument joining, straggling or paced is missing\n", stderr), 64;
  return found->second(argc - 1, argv + 1);
}
