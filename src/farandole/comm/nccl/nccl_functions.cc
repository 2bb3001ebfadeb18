#include "farandole/comm/nccl/nccl_functions.h"

#include "farandole/base/process/shared_library.h"

namespace farandole {

std::string load(NcclFunctions& functions) {
  SharedLibrary library("FARANDOLE_NCCL_LIBRARY", "libnccl.so.2");
  library.find(functions.get_version, "ncclGetVersion");
  library.find(functions.get_unique_id, "ncclGetUniqueId");
  library.find(functions.comm_init_rank_config, "ncclCommInitRankConfig");
  library.find(functions.comm_finalize, "ncclCommFinalize");
  library.find(functions.comm_destroy, "ncclCommDestroy");
  library.find(functions.comm_abort, "ncclCommAbort");
  library.find(functions.comm_get_async_error, "ncclCommGetAsyncError");
  library.find(functions.get_error_string, "ncclGetErrorString");
  library.find(functions.get_last_error, "ncclGetLastError");
  library.find(functions.mem_alloc, "ncclMemAlloc");
  library.find(functions.mem_free, "ncclMemFree");
  library.find(functions.comm_register, "ncclCommRegister");
  library.find(functions.comm_deregister, "ncclCommDeregister");
  library.find(functions.group_start, "ncclGroupStart");
  library.find(functions.group_end, "ncclGroupEnd");
  library.find(functions.all_reduce, "ncclAllReduce");
  library.find(functions.red_op_create_pre_mul_sum, "ncclRedOpCreatePreMulSum");
  library.find(functions.red_op_destroy, "ncclRedOpDestroy");
  library.find(functions.reduce, "ncclReduce");
  library.find(functions.broadcast, "ncclBroadcast");
  library.find(functions.all_gather, "ncclAllGather");
  library.find(functions.reduce_scatter, "ncclReduceScatter");
  library.find(functions.send, "ncclSend");
  library.find(functions.recv, "ncclRecv");
  return library.why_not();
}

}  // namespace farandole
