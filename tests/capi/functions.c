// Every function of farandole/capi.h, on each rank, from C. Prints "done" on rank 0; ends the job with a line if one is wrong.
// With the arguments "guest RANK RUN", one of two ranks that are recorded only, and that knows nothing of the other one.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

enum { most = 5000, calls = 60 };
static int rank, size;

// Collectives in random sizes, half of them asynchronous and waited for in another order.
static void reduce_many(void* group, unsigned seed) {
  static float data[calls][most];
  int64_t tickets[calls];
  size_t counts[calls];
  const int own = fdl_group_rank(group), ranks = fdl_group_size(group);
  srand(seed);
  for (int i = 0; i < calls; ++i) {
    counts[i] = (size_t)(rand() % most);
    for (size_t k = 0; k < counts[i]; ++k) data[i][k] = (float)((own + 1) * (i + 1));
    tickets[i] = 0;
    EXPECT(fdl_allreduce(group, "sums", data[i], counts[i], FDL_FLOAT32, FDL_SUM, rand() % 2 ? &tickets[i] : NULL) == 0);
  }
  for (int i = calls - 1; i >= 0; --i) {
    int done = 0;
    if (tickets[i] != 0) {
      EXPECT(fdl_wait(tickets[i], -1, &done) == 0 && done == 1);
      EXPECT(fdl_wait(tickets[i], 0, &done) == 64);
    }
    const float sum = (float)(ranks * (ranks + 1) / 2 * (i + 1));
    for (size_t k = 0; k < counts[i]; ++k) EXPECT(data[i][k] == sum);
  }
}

static void* take_ends(void* unused) {
  (void)unused;
  long ends = 0;
  for (int result = 0;;) {
    const int64_t ticket = fdl_next_done(-1, &result);
    if (ticket <= 0) break;
    EXPECT(result == 0);
    ++ends;
  }
  return (void*)ends;
}

static void gather_and_scatter(void* group) {
  const int own = fdl_group_rank(group), ranks = fdl_group_size(group), root = ranks - 1;
  int32_t mine = own, all[64] = {0}, part = -1, values[64];
  size_t sizes[64], none[64] = {0};
  for (int i = 0; i < ranks; ++i) sizes[i] = sizeof mine;
  EXPECT(fdl_all_gather(group, "all", &mine, all, sizeof mine, NULL, NULL) == 0);
  for (int i = 0; i < ranks; ++i) EXPECT(all[i] == i);
  memset(all, 0, sizeof all);
  EXPECT(fdl_all_gather(group, "all", &mine, all, 0, sizes, NULL) == 0);
  for (int i = 0; i < ranks; ++i) EXPECT(all[i] == i);
  memset(all, 0, sizeof all);
  EXPECT(fdl_gather(group, "to root", &mine, all, sizeof mine, root, NULL) == 0);
  for (int i = 0; i < ranks; ++i) EXPECT(all[i] == (own == root ? i : 0));
  for (int i = 0; i < ranks; ++i) values[i] = 10 * i;
  EXPECT(fdl_scatter(group, "from root", values, &part, sizeof part, root, NULL) == 0 && part == 10 * own);
  EXPECT(fdl_reduce_scatter(group, "parts", values, &part, 1, NULL, FDL_INT32, FDL_MAX, NULL) == 0 && part == 10 * own);
  EXPECT(fdl_all_to_all(group, "exchange", values, sizes, all, sizes, NULL) == 0);
  for (int i = 0; i < ranks; ++i) EXPECT(all[i] == 10 * own);
  EXPECT(fdl_all_to_all(group, "nothing", values, none, all, NULL, NULL) == 0);
  mine = own + 1;
  EXPECT(fdl_reduce(group, "total", &mine, 1, FDL_INT32, FDL_SUM, root, NULL) == 0);
  EXPECT(mine == (own == root ? ranks * (ranks + 1) / 2 : own + 1));
  EXPECT(fdl_broadcast(group, "root's", &mine, sizeof mine, root, NULL) == 0 && mine == ranks * (ranks + 1) / 2);
  int8_t small = (int8_t)(own + 1);
  EXPECT(fdl_allreduce(group, "int8", &small, 1, FDL_INT8, FDL_PRODUCT, NULL) == 0);
  EXPECT(fdl_barrier(group, "barrier", NULL) == 0);
}

static void send_around(void* group) {
  const int own = fdl_group_rank(group), ranks = fdl_group_size(group);
  int64_t sent, received;
  int value = own, got = -1, peer = -1, done = 0;
  EXPECT(fdl_receive(group, &got, sizeof got, -1, 7, &peer, &received) == 0);
  EXPECT(fdl_send(group, &value, sizeof value, (own + 1) % ranks, 7, &sent) == 0);
  EXPECT(fdl_wait(received, -1, &done) == 0 && fdl_wait(sent, -1, &done) == 0);
  EXPECT(got == (own + ranks - 1) % ranks && peer == got);
  EXPECT(fdl_send(group, &value, sizeof value, ranks, 7, NULL) == 64);
}

static void refuse_mistakes(void* group) {
  float value = 1;
  void* none = NULL;
  const int ranks[] = {rank, rank};
  EXPECT(fdl_allreduce(NULL, "x", &value, 1, FDL_FLOAT32, FDL_SUM, NULL) == 64 && strstr(fdl_error(), "NULL"));
  EXPECT(fdl_allreduce(group, "x", &value, 1, 99, FDL_SUM, NULL) == 64 && strstr(fdl_error(), "99"));
  EXPECT(fdl_allreduce(group, "x", &value, 1, FDL_FLOAT32, 9, NULL) == 64);
  EXPECT(fdl_allreduce(group, "x", &value, 1, FDL_INT64, FDL_AVERAGE, NULL) == 64);
  EXPECT(fdl_broadcast(group, "x", &value, 4, size, NULL) == 64);
  EXPECT(fdl_allreduce(group, NULL, &value, 1, FDL_FLOAT32, FDL_SUM, NULL) == 64 && strstr(fdl_error(), "NULL"));
  EXPECT(fdl_group(ranks, 2, &none) == 64);
  for (int wrong = -1; wrong <= size; wrong += size + 1)
    EXPECT(fdl_group(&wrong, 1, &none) == 64 && strstr(fdl_error(), "there are only the ranks 0 to"));
  EXPECT(fdl_group(ranks, -1, &none) == 64 && strstr(fdl_error(), "-1 ranks"));
  const char* const names[] = {"weight"};
  const int float32 = FDL_FLOAT32, dimensions = 2;
  const int64_t shapes[][2] = {{1LL << 62, 1}, {1LL << 31, 1LL << 31}, {-1, 0}};
  for (int i = 0; i < 3; ++i)
    EXPECT(fdl_reducer(NULL, 0, 1, names, &float32, &dimensions, shapes[i], FDL_SUM, "none", 0, &none) == 64 &&
           strstr(fdl_error(), "weight needs sizes"));
  EXPECT(fdl_reducer(NULL, 0, -5, NULL, NULL, NULL, NULL, FDL_SUM, "none", 0, &none) == 64 && strstr(fdl_error(), "-5 tensors"));
  EXPECT(fdl_wait(123456789, 0, NULL) == 64);
  EXPECT(fdl_log(0, 0, "no JSON") == 64 && fdl_log(0, 0, "{\"a\": \"text\"}") == 64 && fdl_run_facts("[]") == 64);
}

// Rank 0 has no calls, and counts as zero in those of the others.
static void join(void) {
  void* group = NULL;
  int64_t calls = -1;
  double ones[2] = {1, 1};
  EXPECT(fdl_group(NULL, 0, &group) == 0 && fdl_join(group, &calls) == 64 && fdl_group_may_join(group) == 0);
  for (int call = 0; fdl_rank() > 0 && call < 3; ++call) {
    EXPECT(fdl_allreduce(group, "ones", ones, 2, FDL_FLOAT64, FDL_AVERAGE, NULL) == 0);
    EXPECT(ones[1] * fdl_size() > fdl_size() - 1.001 && ones[1] * fdl_size() < fdl_size() - 0.999);
    ones[0] = ones[1] = 1;
  }
  EXPECT(fdl_join(group, &calls) == 0 && calls == (fdl_rank() == 0 ? 3 : 0));
  EXPECT(fdl_allreduce(group, "ones", ones, 2, FDL_FLOAT64, FDL_SUM, NULL) == 0 && ones[1] == fdl_size());
  fdl_group_free(group);
}

static void record(void) {
  const int name = fdl_intern("work"), other = fdl_intern("count");
  EXPECT(fdl_intern("work") == name && other != name && fdl_recording() == 1);
  for (int depth = 0; depth < 70; ++depth) fdl_begin(FDL_OTHER, name);
  for (int depth = 0; depth < 71; ++depth) fdl_end();
  fdl_begin(99, -5);
  fdl_end();
  fdl_instant(name);
  fdl_counter(other, 2.5);
  fdl_fact("a fact", "its value");
  fdl_fact("a fact", NULL);
  EXPECT(fdl_intern(NULL) == fdl_intern(""));
  void* observed = NULL;
  EXPECT(fdl_observe(NULL, 0, 40000, 5 * fdl_rank(), &observed) == 0);
  for (int step = 0; step < 20; ++step) {
    const int64_t start = fdl_now();
    fdl_set_step(step);
    const int64_t first = fdl_enter(observed, "allreduce", "first", 8, 0), second = fdl_enter(observed, "allreduce", "second", 8, 0);
    fdl_span(FDL_BACKWARD, name, start, fdl_now());
    fdl_leave(observed, second);
    fdl_leave(observed, first);
    fdl_leave(observed, fdl_enter(observed, "broadcast", "third", 8, 1));
    fdl_span(FDL_STEP, name, start, fdl_now());
  }
  fdl_observe_end(observed);
  fdl_set_step(-1);
  fdl_begin_first_step();
  EXPECT(fdl_end_step(&name, fdl_now()) == 1 && fdl_end_step(&other, fdl_now()) == 0);
  fdl_forget_optimizer(&name);
  EXPECT(fdl_end_step(&other, fdl_now()) == 1);
  EXPECT(fdl_run_facts("{\"program\": \"functions\", \"global_batch\": 6, \"versions\": {\"torch\": \"2.0\"}}") == 0);
  EXPECT(fdl_run_facts("{\"parameters\": 17}") == 0);
  EXPECT(fdl_log(3, 1, "{\"loss\": 0.5, \"norm\": null}") == 0);
}

static int be_guest(int of, const char* run_dir) {
  int any;
  void* group;
  EXPECT(fdl_init_guest(2, 2, 0, 1, run_dir) == 64 && fdl_init_guest(0, 2, 0, 1, NULL) == 64 && !fdl_is_running());
  EXPECT(fdl_init_guest(of, 2, of, 2, run_dir) == 0 && fdl_init_guest(of, 2, of, 2, run_dir) == 0 && fdl_is_running());
  EXPECT(fdl_rank() == of && fdl_size() == 2 && fdl_local_rank() == of && fdl_local_size() == 2 && !*fdl_host(0));
  EXPECT(fdl_agree(1, &any) == 64 && fdl_group(NULL, 0, &group) == 64 && strstr(fdl_error(), "farandole run"));
  record();
  EXPECT(fdl_close_at_exit() == 0);
  return 3;
}

/* Rank 1 works on while rank 0 waits for it, until the file "seen" is there. */
static int wait_as_guest(int of, const char* run_dir) {
  char invitation[4096] = "";
  EXPECT(fdl_init_guest(of, 2, of, 2, run_dir) == 0);
  if (of == 0) {
    EXPECT(fdl_invite(invitation, 10) == 64 && fdl_invite(invitation, sizeof invitation) == 0 && *invitation);
    FILE* file = fopen("invitation.new", "w");
    EXPECT(file && fputs(invitation, file) >= 0 && !fclose(file) && !rename("invitation.new", "invitation"));
  } else {
    FILE* file;
    while (!(file = fopen("invitation", "r"))) usleep(1000);
    EXPECT(fgets(invitation, sizeof invitation, file) && !fclose(file) && fdl_meet(invitation) == 0);
  }
  void* observed = NULL;
  EXPECT(fdl_observe(NULL, 0, 0, 0, &observed) == 0);
  while (access("seen", F_OK)) {
    const int64_t call = of == 0 ? fdl_enter(observed, "allreduce", "late", 8, 1) : fdl_end_step(&observed, fdl_now());
    for (int i = 0; i < (of == 0 ? 300 : 1) && access("seen", F_OK); ++i) usleep(10000);
    if (of == 0) fdl_leave(observed, call);
  }
  EXPECT(fdl_close() == 0);
  return 0;
}

int main(int count, char** arguments) {
  if (count == 4 && !strcmp(arguments[1], "wait")) return wait_as_guest(atoi(arguments[2]), arguments[3]);
  if (count == 4 && !strcmp(arguments[1], "guest")) return be_guest(atoi(arguments[2]), arguments[3]);
  float before = 1;
  EXPECT(fdl_abi() == FDL_ABI && strchr(fdl_version(), '.') && !fdl_is_running());
  EXPECT(fdl_agree(1, NULL) == 64 && fdl_next_done(0, NULL) == -1);
  fdl_begin(FDL_DATA, fdl_intern("early"));  // records nothing
  fdl_end();
  EXPECT(fdl_init() == 0 && fdl_init() == 0 && fdl_is_running());
  rank = fdl_rank(), size = fdl_size();
  EXPECT(rank < size && fdl_local_rank() < fdl_local_size() && *fdl_host(size - 1) && !*fdl_host(size));

  void *all = NULL, *some = NULL, *others = NULL;
  EXPECT(fdl_group(NULL, 0, &all) == 0 && fdl_group_rank(all) == rank && fdl_group_size(all) == size);
  const int first_two[] = {1, 0}, last_two[] = {1, 2};
  EXPECT(fdl_group(first_two, 2, &some) == 0 && fdl_group(last_two, 2, &others) == 0);
  EXPECT((some != NULL) == (rank < 2) && (others != NULL) == (rank > 0) && fdl_group_rank(NULL) == -1);
  reduce_many(all, 1);
  if (some) {
    EXPECT(fdl_group_rank(some) == 1 - rank);
    reduce_many(some, 2);
    gather_and_scatter(some);
  }
  if (others) {
    reduce_many(others, 3);
    send_around(others);
  }
  gather_and_scatter(all);
  join();
  send_around(all);
  refuse_mistakes(all);
  record();

  // Opposite orders of two groups, which must not wait for each other.
  if (rank == 1) {
    int64_t a, b;
    float x = 1, y = 1;
    EXPECT(fdl_allreduce(others, "both", &y, 1, FDL_FLOAT32, FDL_SUM, &b) == 0);
    EXPECT(fdl_allreduce(some, "both", &x, 1, FDL_FLOAT32, FDL_SUM, &a) == 0);
    EXPECT(fdl_wait(a, -1, NULL) == 0 && fdl_wait(b, -1, NULL) == 0 && x == 2 && y == 2);
  } else {
    if (rank == 2) usleep(100000);
    EXPECT(fdl_allreduce(rank == 0 ? some : others, "both", &before, 1, FDL_FLOAT32, FDL_SUM, NULL) == 0);
  }

  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, take_ends, NULL) == 0);
  for (int i = 0; i < 50; ++i) {
    int64_t ticket;
    EXPECT(fdl_barrier(all, "noted", &ticket) == 0 && fdl_notify(ticket) == 0);
  }
  EXPECT(fdl_barrier(all, "after", NULL) == 0);
  int any = -1;
  EXPECT(fdl_agree(rank == 1, &any) == 0 && any == 1 && fdl_agree(0, &any) == 0 && any == 0);
  EXPECT(fdl_stop_requested() == 0);
  if (rank == 0) kill(getpid(), SIGTERM);
  EXPECT(fdl_agree(fdl_stop_requested(), &any) == 0 && any == 1);

  // A forked child is no rank.
  const pid_t child = fork();
  if (child == 0) _exit(fdl_is_running() || fdl_init() != 64 || fdl_rank() != 0);
  int status = -1;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);

  const char* const names[] = {"weight"};
  const int float32 = FDL_FLOAT32, dimensions = 1;
  const int64_t shape = 4;
  void* reducer = NULL;
  EXPECT(fdl_reducer(NULL, 0, 1, names, &float32, &dimensions, &shape, FDL_AVERAGE, "none", 0, &reducer) == 0 && reducer);
  fdl_group_free(some);
  EXPECT(fdl_close() == 0 && fdl_close() == 0 && !fdl_is_running());
  void* ends = NULL;
  pthread_join(thread, &ends);
  EXPECT((long)ends == 50 && fdl_agree(1, &any) == 64);
  fdl_begin(FDL_DATA, 1);
  fdl_end();
  // What used groups and reducers is gone.
  EXPECT(fdl_allreduce(all, "late", &before, 1, FDL_FLOAT32, FDL_SUM, NULL) == 64 && fdl_group_rank(all) == -1 && fdl_group_size(all) == 0);
  EXPECT(fdl_reducer_ready(reducer, 0) == 64 && fdl_reducer_finish(reducer) == 64 && !fdl_reducer_data(reducer, 0));
  fdl_reducer_free(reducer);
  fdl_group_free(all);
  if (rank == 0) puts("done");
  return 0;
}
