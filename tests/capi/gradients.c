// The gradients of farandole/capi.h, on four ranks, from C. Prints "done" on rank 0; ends the job with a line if something
// is wrong.
//   gradients            every function
//   gradients stalls     rank 1 lacks a gradient for some time (two ranks)
//   gradients leaves     the last rank ends while the others reduce; with "killed", by a signal
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "expect.h"

enum { tensors = 9, most = 3000, bucket = 8192 };
static int rank, size;
static const char* const names[tensors] = {"w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8"};
static const int dimensions[tensors] = {1, 2, 1, 0, 1, 1, 2, 1, 1};
static const int64_t shapes[] = {most, 7, 11, 1, 0, most, 30, 2, 5, 64};  // w3 is a scalar, and w4 is empty
static const size_t counts[tensors] = {most, 77, 1, 1, 0, most, 60, 5, 64};
static const int all_ranks[] = {0, 1, 2, 3};

static int make(const int* ranks, int count, int dtype, int op, const char* compression, void** reducer) {
  int dtypes[tensors];
  for (int i = 0; i < tensors; ++i) dtypes[i] = dtype;
  return fdl_reducer(ranks, count, tensors, names, dtypes, dimensions, shapes, op, compression, bucket,
                     reducer);
}

static double value_of(int of_rank, int tensor, size_t k) {
  return (of_rank + 1) * (tensor + 1) + (double)(k % 3);
}

// Elements of float32, float64, float16 and bfloat16; of the last two, small positive integers only.
static void store(void* data, int dtype, size_t k, double value) {
  const float narrow = (float)value;
  uint32_t bits;
  memcpy(&bits, &narrow, sizeof bits);
  if (dtype == FDL_FLOAT64) ((double*)data)[k] = value;
  if (dtype == FDL_FLOAT32) ((float*)data)[k] = narrow;
  if (dtype == FDL_BFLOAT16) ((uint16_t*)data)[k] = (uint16_t)(bits >> 16);
  if (dtype == FDL_FLOAT16) ((uint16_t*)data)[k] = value == 0 ? 0 : (uint16_t)((bits - (112u << 23)) >> 13);
}
static double load(const void* data, int dtype, size_t k) {
  if (dtype == FDL_FLOAT64) return ((const double*)data)[k];
  if (dtype == FDL_FLOAT32) return ((const float*)data)[k];
  const uint16_t half = ((const uint16_t*)data)[k];
  const uint32_t bits = dtype == FDL_BFLOAT16 ? (uint32_t)half << 16
                        : half == 0           ? 0
                                              : ((uint32_t)half << 13) + (112u << 23);
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void produce(void* reducer, int tensor, int dtype, int own) {
  void* const data = fdl_reducer_data(reducer, tensor);
  for (size_t k = 0; k < counts[tensor]; ++k) store(data, dtype, k, value_of(own, tensor, k));
  EXPECT(fdl_reducer_ready(reducer, tensor) == 0);
}

// `missing`: rank r of the reducer does not have tensor r, and nobody has tensor 7.
static void check(void* reducer, int dtype, int op, int ranks, int missing, double tolerance) {
  for (int i = 0; i < tensors; ++i) {
    EXPECT(fdl_reducer_present(reducer, i) == !(missing && (i == 7 || (i == 0 && ranks == 1))));
    for (size_t k = 0; k < counts[i]; ++k) {
      double sum = 0;
      for (int r = 0; r < ranks; ++r)
        if (!missing || (i != r && i != 7)) sum += value_of(r, i, k);
      const double expected = op == FDL_SUM ? sum : sum / ranks;
      EXPECT(fabs(load(fdl_reducer_data(reducer, i), dtype, k) - expected) <= tolerance * expected);
    }
  }
}

struct Half {
  void* reducer;
  int dtype, own;
};
static void* produce_half(void* of) {
  const struct Half* const half = of;
  for (int i = 0; i < tensors; i += 2) produce(half->reducer, i, half->dtype, half->own);
  return NULL;
}

// The gradients come in another order on each rank, half of them from another thread.
static void step(void* reducer, int dtype, int own) {
  struct Half half = {reducer, dtype, own};
  pthread_t other;
  EXPECT(pthread_create(&other, NULL, produce_half, &half) == 0);
  for (int n = 1; n < tensors; n += 2) produce(reducer, own % 2 ? n : tensors - 1 - n, dtype, own);
  pthread_join(other, NULL);
  EXPECT(fdl_reducer_finish(reducer) == 0);
}

// Ranks 0 to `ranks` - 1 in opposite order.
static void reduce(int ranks, int dtype, int op, const char* compression, double tolerance) {
  int list[] = {0, 1, 2, 3};
  for (int i = 0; i < ranks; ++i) list[i] = ranks - 1 - i;
  void* reducer = NULL;
  EXPECT(make(ranks == size ? NULL : list, ranks, dtype, op, compression, &reducer) == 0);
  EXPECT((reducer != NULL) == (rank < ranks));
  if (reducer == NULL) return;
  const int own = ranks == size ? rank : ranks - 1 - rank;
  int changed = -1;
  EXPECT(fdl_reducer_present(reducer, 0) == 0 && fdl_reducer_replan(reducer, &changed) == 0 && changed == 0);
  for (int round = 0; round < 3; ++round) {
    step(reducer, dtype, own);
    check(reducer, dtype, op, ranks, 0, tolerance);
    EXPECT(fdl_reducer_replan(reducer, &changed) == 0);
    EXPECT(changed == (round == 0 && strcmp(compression, "none") == 0));
    for (int i = 0; i < tensors; ++i)
      if (i != own && i != 7) produce(reducer, i, dtype, own);
    EXPECT(fdl_reducer_finish(reducer) == 0);
    check(reducer, dtype, op, ranks, 1, tolerance);
  }
  fdl_reducer_free(reducer);
}

// All ranks must have the same bits, although compression has rounded.
static void check_same_bits(void) {
  void *reducer = NULL, *group = NULL;
  EXPECT(make(NULL, 0, FDL_FLOAT32, FDL_AVERAGE, "float16", &reducer) == 0 &&
         fdl_group(NULL, 0, &group) == 0);
  float* const data = fdl_reducer_data(reducer, 0);
  for (int k = 0; k < most; ++k) data[k] = 1.0f / (float)(rank + k + 3);
  EXPECT(fdl_reducer_ready(reducer, 0) == 0 && fdl_reducer_finish(reducer) == 0);
  static float least[most];
  memcpy(least, data, sizeof least);
  EXPECT(fdl_allreduce(group, "least", least, most, FDL_FLOAT32, FDL_MIN, NULL) == 0);
  EXPECT(memcmp(least, data, sizeof least) == 0);
  fdl_reducer_free(reducer);
  fdl_group_free(group);
}

// Two reducers, whose steps overlap and end in different orders on the ranks.
static void reduce_in_turns(void) {
  void* both[2] = {NULL, NULL};
  EXPECT(make(NULL, 0, FDL_FLOAT32, FDL_SUM, "none", &both[0]) == 0);
  EXPECT(make(NULL, 0, FDL_FLOAT64, FDL_AVERAGE, "none", &both[1]) == 0);
  const int dtypes[] = {FDL_FLOAT32, FDL_FLOAT64}, ops[] = {FDL_SUM, FDL_AVERAGE};
  for (int round = 0; round < 5; ++round) {
    const int first = (rank + round) % 2;
    for (int i = tensors - 1; i >= 0; --i) {
      produce(both[first], i, dtypes[first], rank);
      produce(both[1 - first], i, dtypes[1 - first], rank);
    }
    EXPECT(fdl_reducer_finish(both[first]) == 0 && fdl_reducer_finish(both[1 - first]) == 0);
    for (int b = 0; b < 2; ++b) check(both[b], dtypes[b], ops[b], size, 0, 1e-6);
  }
  fdl_reducer_free(both[0]);
  fdl_reducer_free(both[1]);
}

// A rank blocks in a collective of another group, which the others start before and enter after their finish(): the reduction
// goes on meanwhile.
static void block_elsewhere(void) {
  enum { large = 1 << 20 };
  void *reducer = NULL, *group = NULL;
  const char* const own_names[] = {"first", "second"};
  const int types[] = {FDL_FLOAT32, FDL_FLOAT32}, one[] = {1, 1};
  const int64_t sizes[] = {large, large};
  EXPECT(fdl_reducer(NULL, 0, 2, own_names, types, one, sizes, FDL_SUM, "none", 0, &reducer) == 0);
  EXPECT(fdl_group(NULL, 0, &group) == 0);
  for (int round = 0; round < 4; ++round) {
    float* const data[] = {fdl_reducer_data(reducer, 0), fdl_reducer_data(reducer, 1)};
    for (int i = 0; i < 2; ++i)
      for (int k = 0; k < large; ++k) data[i][k] = (float)(rank + i);
    int64_t ticket = 0;
    EXPECT(fdl_reducer_ready(reducer, 1) == 0);
    if (rank == round)
      EXPECT(fdl_barrier(group, "between", NULL) == 0);
    else
      EXPECT(fdl_barrier(group, "between", &ticket) == 0);
    EXPECT(fdl_reducer_ready(reducer, 0) == 0);
    if (rank == round) EXPECT(fdl_barrier(group, "before the end", NULL) == 0);
    EXPECT(fdl_reducer_finish(reducer) == 0);
    if (rank != round)
      EXPECT(fdl_barrier(group, "before the end", NULL) == 0 && fdl_wait(ticket, -1, NULL) == 0);
    for (int i = 0; i < 2; ++i)
      for (int k = 0; k < large; k += 999) EXPECT(data[i][k] == (float)(size * (size - 1) / 2 + size * i));
  }
  fdl_reducer_free(reducer);
  fdl_group_free(group);
}

static void refuse_differences(void) {
  void* none = NULL;
  const char* const own_names[] = {"w", rank == 1 ? "other" : "b"};
  const char* const same_names[] = {"w", "b"};
  const int types[] = {FDL_FLOAT32, FDL_FLOAT32}, one[] = {1, 1};
  const int64_t sizes[] = {3, 4}, other_sizes[] = {3, rank == 2 ? 5 : 4};
  EXPECT(fdl_reducer(NULL, 0, 2, own_names, types, one, sizes, FDL_SUM, "none", 0, &none) == 64);
  EXPECT(strstr(fdl_error(), "rank 1") && strstr(fdl_error(), "other float32 [4]") &&
         strstr(fdl_error(), "ranks 0, 2, 3"));
  EXPECT(fdl_reducer(NULL, 0, 2, same_names, types, one, other_sizes, FDL_SUM, "none", 0, &none) == 64);
  EXPECT(strstr(fdl_error(), "b float32 [5]") && strstr(fdl_error(), "rank 2"));
  EXPECT(fdl_reducer(NULL, 0, 2, same_names, types, one, sizes, rank == 3 ? FDL_AVERAGE : FDL_SUM, "none", 0,
                     &none) == 64);
  EXPECT(strstr(fdl_error(), "the average as they are on rank 3") &&
         strstr(fdl_error(), "the sum as they are on ranks 0-2"));
  EXPECT(fdl_reducer(NULL, 0, 2, same_names, types, one, sizes, FDL_SUM, rank == 0 ? "float16" : "bfloat16",
                     0, &none) == 64);
  EXPECT(strstr(fdl_error(), "the sum as float16 on rank 0"));
  EXPECT(none == NULL);
}

static void refuse_mistakes(void) {
  void *reducer = NULL, *none = NULL;
  EXPECT(make(NULL, 0, FDL_INT64, FDL_SUM, "none", &none) == 64 && strstr(fdl_error(), "int64"));
  EXPECT(make(NULL, 0, 77, FDL_SUM, "none", &none) == 64 && strstr(fdl_error(), "w0"));
  EXPECT(make(NULL, 0, FDL_FLOAT32, FDL_MAX, "none", &none) == 64 && strstr(fdl_error(), "FDL_SUM"));
  EXPECT(make(NULL, 0, FDL_FLOAT32, FDL_SUM, "zip", &none) == 64 && strstr(fdl_error(), "'zip'"));
  EXPECT(make(NULL, 0, FDL_FLOAT32, FDL_SUM, "bfloat16:between-nodes", &none) == 64);
  EXPECT(make(all_ranks, size, FDL_FLOAT32, FDL_SUM, "none", &reducer) == 0 && none == NULL);
  EXPECT(fdl_reducer_ready(NULL, 0) == 64 && strstr(fdl_error(), "NULL") && fdl_reducer_finish(NULL) == 64);
  EXPECT(fdl_reducer_data(reducer, tensors) == NULL && fdl_reducer_ready(reducer, -1) == 64);
  EXPECT(fdl_reducer_ready(reducer, 2) == 0 && fdl_reducer_ready(reducer, 2) == 1 &&
         strstr(fdl_error(), "w2"));
  EXPECT(fdl_reducer_finish(reducer) == 0 && fdl_reducer_present(reducer, 2) == 1 &&
         fdl_reducer_present(reducer, 1) == 0);
  fdl_reducer_free(NULL);
}

int main(int argc, char** argv) {
  const char* const what = argc > 1 ? argv[1] : "";
  void *reducer = NULL, *none = NULL;
  EXPECT(make(NULL, 0, FDL_FLOAT32, FDL_SUM, "none", &none) == 64 && strstr(fdl_error(), "fdl_init()"));
  EXPECT(fdl_init() == 0);
  rank = fdl_rank(), size = fdl_size();
  if (strcmp(what, "stalls") == 0) {
    EXPECT(make(NULL, 0, FDL_FLOAT32, FDL_SUM, "none", &reducer) == 0);
    for (int i = 0; i < tensors; ++i) {
      struct timespec left = {3, 0};
      while (rank == 1 && i == 5 && nanosleep(&left, &left) != 0) continue;  // the watchdog interrupts it
      produce(reducer, i, FDL_FLOAT32, rank);
    }
    EXPECT(fdl_reducer_finish(reducer) == 0 && fdl_close() == 0);
    return 0;
  }
  EXPECT(make(NULL, 0, FDL_FLOAT32, FDL_SUM, "none", &reducer) == 0);
  if (strcmp(what, "leaves") == 0) {
    if (rank == size - 1) return argc > 2 ? raise(SIGKILL) : fdl_close();
    for (int i = 0; i < tensors; ++i) produce(reducer, i, FDL_FLOAT32, rank);
    const int code = fdl_reducer_finish(reducer);
    fdl_abort(code, fdl_error());
  }

  const int dtypes[] = {FDL_FLOAT32, FDL_FLOAT64, FDL_FLOAT16, FDL_BFLOAT16};
  for (int ranks = 1; ranks <= size; ++ranks)
    for (int i = 0; i < 4; ++i) {
      const double tolerance = i < 2 ? 1e-6 : 8e-3;
      reduce(ranks, dtypes[i], FDL_SUM, "none", tolerance);
      reduce(ranks, dtypes[i], FDL_AVERAGE, "none", tolerance);
      reduce(ranks, dtypes[i], i % 2 ? FDL_SUM : FDL_AVERAGE, "float16", 8e-3);
      reduce(ranks, dtypes[i], i % 2 ? FDL_AVERAGE : FDL_SUM, "bfloat16", 2e-2);
    }
  check_same_bits();
  reduce_in_turns();
  block_elsewhere();
  refuse_differences();
  refuse_mistakes();

  // The end of the job, with reducers in the middle of a step.
  for (int i = 1; i < tensors; ++i) produce(reducer, i, FDL_FLOAT32, rank);
  EXPECT(fdl_close() == 0);
  fdl_reducer_free(reducer);
  if (rank == 0) puts("done");
  return 0;
}
