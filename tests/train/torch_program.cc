// What scripts start and needs LibTorch, as one program because LibTorch's header takes 20 s to parse.
#include "train/torch_program.h"

#include "called_by_name.h"

int main(int argc, char** argv) {
  return farandole::call_by_name({{"bare_program", bare_program},
                                  {"deadlocking", deadlocking},
                                  {"export_models", export_models},
                                  {"gpt_step", gpt_step},
                                  {"launching", launching},
                                  {"many_fits", many_fits},
                                  {"metric_files", metric_files},
                                  {"mistaken", mistaken},
                                  {"own_training", own_training},
                                  {"straggling", straggling}},
                                 argc, argv);
}
