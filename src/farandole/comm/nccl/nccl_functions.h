// The functions of NCCL that we call, loaded when a program first needs them.
// Thread safety: any thread may call this at any time.
#pragma once

#include <nccl.h>
#include <string>

namespace farandole {

// Members have the types of NCCL's declarations, so a call with wrong arguments does not compile.
struct NcclFunctions {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config;
  decltype(&ncclCommFinalize) comm_finalize;
  decltype(&ncclCommDestroy) comm_destroy;
  decltype(&ncclCommAbort) comm_abort;
  decltype(&ncclCommGetAsyncError) comm_get_async_error;
  decltype(&ncclGetErrorString) get_error_string;
  decltype(&ncclGetLastError) get_last_error;
  decltype(&ncclMemAlloc) mem_alloc;
  decltype(&ncclMemFree) mem_free;
  decltype(&ncclCommRegister) comm_register;
  decltype(&ncclCommDeregister) comm_deregister;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclRedOpCreatePreMulSum) red_op_create_pre_mul_sum;
  decltype(&ncclRedOpDestroy) red_op_destroy;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclReduceScatter) reduce_scatter;
};

// Loads libnccl.so.2, or the file that the environment variable FARANDOLE_NCCL_LIBRARY names. Returns why it
// cannot be loaded, or "". The library stays loaded until the process ends.
std::string load(NcclFunctions& functions);

}  // namespace farandole
