/* A program in C that trains nothing: its ranks reduce numbers, record what they do, and rank 0 prints the result.
 *
 *   farandole run -n 2 --run-dir runs/reduce -- examples/reduce
 *   farandole analyze runs/reduce
 */
#include <farandole/capi.h>
#include <stdio.h>
#include <stdlib.h>

enum { steps = 20, size = 1 << 16 };
static float values[size];

static void check(int result) {
  if (result != 0) fdl_abort(result, fdl_error());
}

int main(void) {
  check(fdl_init());
  void* ranks = NULL;
  check(fdl_group(NULL, 0, &ranks));
  check(fdl_run_facts("{\"program\": \"reduce\", \"global_batch\": 65536}"));
  const int compute = fdl_intern("compute"), step_name = fdl_intern("step");
  for (int step = 0; step < steps; ++step) {
    const int64_t start = fdl_now();
    fdl_set_step(step);
    fdl_begin(FDL_FORWARD, compute);
    for (int i = 0; i < size; ++i) values[i] = (float)(fdl_rank() + step);
    fdl_end();
    check(fdl_allreduce(ranks, "values", values, size, FDL_FLOAT32, FDL_AVERAGE, NULL));
    fdl_span(FDL_STEP, step_name, start, fdl_now());
    char line[64];
    snprintf(line, sizeof line, "{\"value\": %g}", values[0]);
    check(fdl_log(step, 0, line));
  }
  if (fdl_rank() == 0) printf("the mean over %d ranks is %g\n", fdl_size(), values[0]);
  fdl_group_free(ranks);
  check(fdl_close());
  return 0;
}
