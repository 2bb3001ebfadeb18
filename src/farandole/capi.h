/* Farandole for programs in C, Fortran and Python: ranks, groups, collectives and the recorder as plain
 * functions. It needs neither LibTorch nor CUDA.
 *
 * Result: int functions return an exit code of farandole/base/error.h, and 0 if all went well, unless another
 * result is described; fdl_error() then says what, where and what to do.
 * Thread safety: any thread may call the recorder's functions. fdl_init(), fdl_close(), fdl_group(),
 * fdl_reducer() and fdl_agree() belong to the main thread. One thread at a time may use a group or a reducer.
 * Collective: ranks of a group call its collectives in the same order; the functions marked so.
 * Units: bytes; nanoseconds of fdl_now(); counts are of elements.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FDL_ABI 2

/* Element types and operations, in the order of base/dtype.h and comm/reduce_op.h. */
enum fdl_dtype {
  FDL_FLOAT16,
  FDL_BFLOAT16,
  FDL_FLOAT32,
  FDL_FLOAT64,
  FDL_INT32,
  FDL_INT64,
  FDL_UINT8,
  FDL_BOOL,
  FDL_INT8,
  FDL_INT16
};
enum fdl_op { FDL_SUM, FDL_AVERAGE, FDL_MIN, FDL_MAX, FDL_PRODUCT };
/* Categories of time, in the order of timeline/event.h. */
enum fdl_category {
  FDL_DATA,
  FDL_FORWARD,
  FDL_BACKWARD,
  FDL_OPTIMIZER,
  FDL_COMMUNICATION,
  FDL_WAIT,
  FDL_CHECKPOINT,
  FDL_EVALUATION,
  FDL_GPU_KERNEL,
  FDL_GPU_MEMCPY,
  FDL_STEP,
  FDL_OTHER
};

int fdl_abi(void);             /* FDL_ABI of the library, to compare with the header's */
const char* fdl_version(void); /* "0.1.0" */
const char* fdl_error(void);   /* of this thread's last call that failed */

/* --- The job ------------------------------------------------------------------------------------------- */

/* Starts MPI unless the program has done so, and the watchdog; records into FARANDOLE_RUN_DIR if it is set.
 * FARANDOLE_GPU_ACTIVITY says in which steps GPU activity is recorded (docs/gpu.md). A second call does nothing.
 * Collective over the job. */
int fdl_init(void);
/* In place of fdl_init(), in a program that was started by something else and is only recorded, into `run_dir`. It
 * never calls MPI or another rank, and never ends the program. Any thread may call it. Rank 0 calls it first: it
 * moves what an earlier start has left in the folder, and looks up to 20 seconds for a job on another host there. */
int fdl_init_guest(int rank, int size, int local_rank, int local_size, const char* run_dir);
/* After fdl_init_guest(): the ranks then watch each other, and compare their clocks. Rank 0 gets an invitation in
 * `text`, a string of less than 4096 bytes that only ranks of the job may know, and the others give it to fdl_meet().
 * Neither waits for other ranks. */
int fdl_invite(char* text, size_t bytes);
int fdl_meet(const char* text);
int fdl_is_running(void); /* 1 between fdl_init() and fdl_close() */
/* Ends the recording, groups and reducers, then MPI if fdl_init() has started it. Other ranks may work on
 * meanwhile. Functions that get a group or a reducer afterwards return 64. */
int fdl_close(void);
/* fdl_next_done() returns from now on. When this process calls exit(), the job ends as fdl_close() ends it if the
 * exit code is 0 or 75 or this is a guest, and otherwise as fdl_abort() does. */
int fdl_close_at_exit(void);
/* Prints `message` unless another rank has said why the job ends, and ends all ranks with this exit code. */
void fdl_abort(int code, const char* message);

int fdl_rank(void);
int fdl_size(void);
int fdl_local_rank(void);
int fdl_local_size(void);
const char* fdl_host(int rank);

/* Returns in *any whether any rank asks. Collective over the job. */
int fdl_agree(int asks, int* any);
/* 1 after SIGTERM or SIGUSR1, or SIGINT if the program has no handler for it. From the first call on, these
 * signals do not end the process. */
int fdl_stop_requested(void);

/* --- The recorder -------------------------------------------------------------------------------------- */

int64_t fdl_now(void);   /* nanoseconds; the clock of all times below */
int fdl_recording(void); /* 1 if something is recorded at this step */
int fdl_intern(
    const char* name); /* a number for the name, for the functions below; call it once for a name */
/* Begin and end the innermost span of the calling thread. Up to 64 may be open. */
void fdl_begin(int category, int name);
void fdl_end(void);
void fdl_span(int category, int name, int64_t start, int64_t end); /* one that has ended */
void fdl_set_step(int64_t step); /* records from now on belong to it; -1: to no step */
/* For a program that does not number its steps: the first one begins; an optimizer has ended its step, by which so
 * many steps have counted; it exists no more. Of several optimizers, one counts. An optimizer is any address. */
void fdl_begin_first_step(void);
int fdl_end_step(const void* optimizer, int64_t end);
void fdl_forget_optimizer(const void* optimizer);
void fdl_instant(int name);
void fdl_counter(int name, double value);
void fdl_fact(const char* fact, const char* value); /* of this rank, as in Timeline::set_metadata() */
/* Writes run.json on rank 0. `facts` is a JSON object with fields of docs/file-formats.md, which are added
 * to what is known (ranks, hosts, start). Other ranks do nothing. */
int fdl_run_facts(const char* facts);
/* Adds a line to metrics.jsonl on rank 0. `values` is a JSON object of numbers, and null for one that is not finite. */
int fdl_log(int64_t step, int64_t epoch, const char* values);

/* Collectives of another library, for example Gloo: they are recorded, and the watchdog sees them. `ranks`
 * are ranks of the job; NULL: all. They give the same `number`, which counts modulo 32,766; different lists of a
 * rank have different ones. The next call is the library's call `first_call` on these ranks, from 0. */
int fdl_observe(const int* ranks, int count, int number, int64_t first_call, void** observed);
void fdl_observe_end(void* observed);
/* This rank enters a collective: the number of the call. `operation` as "allreduce". Calls may
 * overlap. With `waits` 1, this thread does nothing else until it leaves. */
int64_t fdl_enter(void* observed, const char* operation, const char* name, size_t bytes, int waits);
void fdl_leave(void* observed, int64_t call);

/* Python has called faulthandler.register(signal, file, all_threads=False). When the watchdog looks at the main
 * thread, it calls that handler there, and then reads and empties `file`. */
int fdl_watch_python(int signal, int file);

/* --- Groups and collectives ----------------------------------------------------------------------------- */

/* `ranks` are ranks of the job, in this order; NULL: all. *group is NULL on other ranks. Its collectives run in
 * the order of the calls. Collective over the ranks in the list. */
int fdl_group(const int* ranks, int count, void** group);
void fdl_group_free(void* group);
/* From now on, ranks of the group may call fdl_join() at any time. Each collective first asks the others whether
 * they have, which takes a small allreduce. Collective, before the first other call of the group. */
int fdl_group_may_join(void* group);
/* This rank has no more calls. It takes part in those of the others with values that do not change a result, and
 * averages count it as zeros. Returns when all ranks are here; *calls is the number of those calls. */
int fdl_join(void* group, int64_t* calls);
int fdl_group_rank(void* group);
int fdl_group_size(void* group);

/* With `ticket` NULL, a call returns when its buffers may be used again. Otherwise it returns at once, *ticket
 * is a positive number, and the buffers belong to the call until fdl_wait() or fdl_next_done() has named it.
 * `name` is for the timeline and messages. Roots and peers are ranks of the group. */
int fdl_allreduce(void* group, const char* name, void* data, size_t count, int dtype, int op,
                  int64_t* ticket);
int fdl_reduce(void* group, const char* name, void* data, size_t count, int dtype, int op, int root,
               int64_t* ticket); /* `data` of other ranks is unchanged */
int fdl_broadcast(void* group, const char* name, void* data, size_t bytes, int root, int64_t* ticket);
/* Sizes of all ranks' parts; NULL: `bytes` (or `count`) for each rank. `out` is in the order of the ranks. */
int fdl_all_gather(void* group, const char* name, const void* in, void* out, size_t bytes,
                   const size_t* bytes_by_rank, int64_t* ticket);
int fdl_gather(void* group, const char* name, const void* in, void* out, size_t bytes, int root,
               int64_t* ticket); /* `out` is used on the root */
int fdl_scatter(void* group, const char* name, const void* in, void* out, size_t bytes, int root,
                int64_t* ticket); /* `in` is used on the root */
int fdl_reduce_scatter(void* group, const char* name, const void* in, void* out, size_t count,
                       const size_t* count_by_rank, int dtype, int op, int64_t* ticket);
int fdl_all_to_all(void* group, const char* name, const void* in, const size_t* send_bytes, void* out,
                   const size_t* receive_bytes, int64_t* ticket);
int fdl_barrier(void* group, const char* name, int64_t* ticket);
/* Messages between two ranks. They need no order among the other calls. `source` -1: any; the sender is then in
 * *peer after the call or its wait (NULL: not wanted). */
int fdl_send(void* group, const void* data, size_t bytes, int peer, int tag, int64_t* ticket);
int fdl_receive(void* group, void* data, size_t bytes, int source, int tag, int* peer, int64_t* ticket);

/* Waits for a call: its result. `seconds` < 0: without limit; otherwise *done is 0 if the time has passed. A
 * ticket can be waited for once. */
int fdl_wait(int64_t ticket, double seconds, int* done);
int fdl_test(int64_t ticket); /* 1 if the call has ended; fdl_wait() then returns at once */
/* Marks a call whose end fdl_next_done() tells, in place of fdl_wait(). */
int fdl_notify(int64_t ticket);
/* Waits for the next call that was marked and has ended: its ticket, and its result in *result with the text
 * in fdl_error(). 0: the seconds have passed. -1: fdl_close() was called. */
int64_t fdl_next_done(double seconds, int* result);

/* --- Gradients ------------------------------------------------------------------------------------------ */

/* Sums or averages the gradients of `tensors` tensors in buckets while a backward pass runs, on a thread of its
 * own. `ranks` as in fdl_group(); *reducer is NULL on other ranks. `shapes` has the shapes of all tensors one
 * after the other, dimensions[i] numbers for tensor i; element types are floating-point types. `op`: FDL_SUM or
 * FDL_AVERAGE. `compression`: "none", "float16" or "bfloat16". `bucket_bytes` 0: the default. Fails on all ranks
 * if tensors, operation or compression differ. Collective over the ranks in the list. */
int fdl_reducer(const int* ranks, int count, int tensors, const char* const* names, const int* dtypes,
                const int* dimensions, const int64_t* shapes, int op, const char* compression,
                size_t bucket_bytes, void** reducer);
void fdl_reducer_free(void* reducer);
/* The memory of a tensor's gradient, which belongs to the reducer between fdl_reducer_ready() and the end of
 * fdl_reducer_finish(). NULL if there is no such tensor. */
void* fdl_reducer_data(void* reducer, int tensor);
/* The gradient is complete: once per tensor and step. Any thread may call this; it never waits. */
int fdl_reducer_ready(void* reducer, int tensor);
/* Ends the step: all gradients are reduced. Those that were not ready take part as zeros. */
int fdl_reducer_finish(void* reducer);
int fdl_reducer_present(void* reducer, int tensor); /* 1 if any rank had the gradient in the last step */
/* Between steps: buckets in the order in which gradients were ready in the first step. If *changed, all memory is
 * new, and what it contained is lost. Collective. */
int fdl_reducer_replan(void* reducer, int* changed);
/* This rank has no more steps. It takes part in those of the others without gradients. Returns when all ranks are
 * here; *steps is the number of those steps. */
int fdl_reducer_join(void* reducer, int64_t* steps);

#ifdef __cplusplus
}
#endif
