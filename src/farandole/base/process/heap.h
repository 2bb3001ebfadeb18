// How the heap of the process treats freed memory.
// Thread safety: any thread may call this at any time.
#pragma once

namespace farandole {

// Keeps freed blocks, also large ones, in the process for later allocations. A training step allocates and
// frees the same large tensors again and again, and each block that comes fresh from the system costs one
// page fault per 4 KiB. Returns false and does nothing if the user has tuned malloc with environment
// variables, or if the C library is not glibc.
bool keep_freed_memory();

}  // namespace farandole
