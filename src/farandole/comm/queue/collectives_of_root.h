// Collectives with a root, composed of those that a communicator has.
// Thread safety: none; use from one thread at a time.
// Collective: every rank of the group must call this in the same order.
// Throws: as Communicator.
#pragma once

#include <cstddef>
#include <string_view>

#include "farandole/comm/communicator.h"

namespace farandole {

// data[i] of the root becomes op over all ranks of data[i]. `data` of the other ranks is unchanged. `scratch`
// is for this communicator only.
void reduce(Communicator& communicator, ScratchBuffer& scratch, std::string_view name, void* data,
            std::size_t count, DType dtype, ReduceOp op, int root);
// Every rank contributes `bytes` bytes. On the root, `out` receives them in rank order. `in` must not be a
// part of it.
void gather(Communicator& communicator, std::string_view name, const void* in, void* out, std::size_t bytes,
            int root);
// Every rank receives `bytes` bytes, its part of the root's `in`. `out` must not be a part of it.
void scatter(Communicator& communicator, std::string_view name, const void* in, void* out, std::size_t bytes,
             int root);

}  // namespace farandole
