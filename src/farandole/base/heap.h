// How the process's heap treats memory that was freed. Usable from any thread.
#pragma once

namespace farandole {

// From now on freed blocks, also large ones, stay with the process for the next allocation. A training step
// allocates and frees the same large tensors again and again; each one fresh from the system costs a page
// fault for every 4 KiB. Does nothing where the user has tuned malloc by environment variables, or with
// another C library than glibc. Returns whether it did something.
bool keep_freed_memory();

}  // namespace farandole
