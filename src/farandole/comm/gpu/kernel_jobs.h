// The jobs of our kernels, and what each of their threads does: for GPUs and, in tests, for the CPU.
// Thread safety: any thread may call this at any time.
//
// A batched copy copies many pieces of memory, of any length and alignment, with one launch. A piece is cut
// into parts, and a block of threads copies one part. It writes vectors of 16 bytes at addresses that are
// multiples of 16, and single bytes before the first and after the last one. It reads the largest words to
// which the source is aligned at these places.
#pragma once

#include <cstddef>
#include <cstdint>

#include "farandole/base/dtype.h"
#include "farandole/comm/kernels/device_code.h"
#include "farandole/comm/kernels/float16.h"
#include "farandole/comm/reduce_op.h"

namespace farandole {

struct CopyPiece {
  const std::byte* from;
  std::byte* to;
  std::uint64_t bytes;
  std::uint64_t first_part;  // number of the parts of all earlier pieces
};

// What one launch copies. `pieces` is in memory that the threads can read.
struct BatchedCopy {
  const CopyPiece* pieces;
  std::uint64_t count;
};

// Four vectors for each of 256 threads, so that a bucket of 10 MB has a block for every place of a large GPU.
constexpr std::uint64_t copy_part_bytes = 16 << 10;

FARANDOLE_DEVICE constexpr std::uint64_t copy_parts(std::uint64_t bytes) {
  return (bytes + copy_part_bytes - 1) / copy_part_bytes;
}

// The last piece that begins at this part or before it; pieces without bytes have no parts.
FARANDOLE_DEVICE inline const CopyPiece& piece_of(const BatchedCopy& copy, std::uint64_t part) {
  std::uint64_t low = 0, high = copy.count;
  while (high - low > 1) {
    const std::uint64_t middle = (low + high) / 2;
    (copy.pieces[middle].first_part <= part ? low : high) = middle;
  }
  return copy.pieces[low];
}

template <class Word>
union CopiedVector {
  static constexpr std::uint64_t words = sizeof(DeviceVector) / sizeof(Word);
  DeviceVector vector;
  Word parts[words];

  FARANDOLE_DEVICE void load(const std::byte* from, std::uint64_t v) {
    for (std::uint64_t i = 0; i < words; ++i) parts[i] = reinterpret_cast<const Word*>(from)[v * words + i];
  }
};

// A thread loads several vectors before it stores the first one, because a load takes much longer than its
// share of the memory's bandwidth.
template <class Word>
FARANDOLE_DEVICE void copy_vectors(const std::byte* from, std::byte* to, std::uint64_t vectors,
                                   std::uint32_t thread, std::uint32_t threads) {
  constexpr std::uint64_t at_once = 4;
  std::uint64_t v = thread;
  for (; v + (at_once - 1) * threads < vectors; v += at_once * threads) {
    CopiedVector<Word> values[at_once];
    for (std::uint64_t i = 0; i < at_once; ++i) values[i].load(from, v + i * threads);
    for (std::uint64_t i = 0; i < at_once; ++i)
      reinterpret_cast<DeviceVector*>(to)[v + i * threads] = values[i].vector;
  }
  for (; v < vectors; v += threads) {
    CopiedVector<Word> value;
    value.load(from, v);
    reinterpret_cast<DeviceVector*>(to)[v] = value.vector;
  }
}

// What one of the block's `threads` threads does for one part.
FARANDOLE_DEVICE inline void copy_part(const BatchedCopy& copy, std::uint64_t part, std::uint32_t thread,
                                       std::uint32_t threads) {
  if (copy.count == 0) return;
  const CopyPiece& piece = piece_of(copy, part);
  const std::uint64_t begin = (part - piece.first_part) * copy_part_bytes;
  const std::uint64_t left = piece.bytes - begin;
  const std::uint64_t bytes = left < copy_part_bytes ? left : copy_part_bytes;
  const std::byte* from = piece.from + begin;
  std::byte* to = piece.to + begin;
  const std::uint64_t to_boundary = (16 - (reinterpret_cast<std::uintptr_t>(to) & 15)) & 15;
  const std::uint64_t head = to_boundary < bytes ? to_boundary : bytes;
  const std::uint64_t vectors = (bytes - head) / 16;
  for (std::uint64_t i = thread; i < head; i += threads) to[i] = from[i];
  for (std::uint64_t i = head + 16 * vectors + thread; i < bytes; i += threads) to[i] = from[i];
  from += head;
  to += head;
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  if (address % 16 == 0)
    copy_vectors<DeviceVector>(from, to, vectors, thread, threads);
  else if (address % 8 == 0)
    copy_vectors<DeviceWord<std::uint64_t>>(from, to, vectors, thread, threads);
  else if (address % 4 == 0)
    copy_vectors<DeviceWord<std::uint32_t>>(from, to, vectors, thread, threads);
  else if (address % 2 == 0)
    copy_vectors<DeviceWord<std::uint16_t>>(from, to, vectors, thread, threads);
  else
    copy_vectors<std::byte>(from, to, vectors, thread, threads);
}

// Finds the first NaN or infinity of a vector.

// A number is not finite if and only if all bits of its exponent are ones.
struct NonfiniteScan {
  const void* data;            // aligned to 16 bytes
  std::uint64_t count;         // elements
  std::uint32_t element_size;  // 2, 4 or 8
  std::uint64_t exponent;      // the bits of the exponent of one element
  std::uint64_t* first;        // lowered to the number of the first one
  float* found;                // set to 1 if there is one
  std::uint64_t offset;        // number of the first element of `data`
};

// What `first` is before the scan. Like all numbers of elements, it is the same as a signed number.
constexpr std::uint64_t all_finite = ~std::uint64_t{0} >> 1;

// What thread `thread` of `threads` does. `lower(at, value)` replaces *at by `value` if that is less; for
// threads that run at the same time, it must be atomic.
template <class Word, class Lower>
FARANDOLE_DEVICE void scan_words(const NonfiniteScan& scan, std::uint64_t thread, std::uint64_t threads,
                                 Lower lower) {
  constexpr std::uint64_t lanes = sizeof(DeviceVector) / sizeof(Word);
  const auto exponent = static_cast<Word>(scan.exponent);
  std::uint64_t first = all_finite;
  const auto look = [&](Word word, std::uint64_t at) {
    if ((word & exponent) == exponent && at < first) first = at;
  };
  const std::uint64_t vectors = scan.count / lanes;
  for (std::uint64_t v = thread; v < vectors; v += threads) {
    union {
      DeviceVector vector;
      Word lane[lanes];
    } value;
    value.vector = static_cast<const DeviceVector*>(scan.data)[v];
    for (std::uint64_t i = 0; i < lanes; ++i) look(value.lane[i], v * lanes + i);
  }
  for (std::uint64_t i = vectors * lanes + thread; i < scan.count; i += threads)
    look(static_cast<const Word*>(scan.data)[i], i);
  if (first == all_finite) return;
  lower(scan.first, scan.offset + first);
  *scan.found = 1;
}

template <class Lower>
FARANDOLE_DEVICE void scan_nonfinite(const NonfiniteScan& scan, std::uint64_t thread, std::uint64_t threads,
                                     Lower lower) {
  if (scan.element_size == 2)
    scan_words<DeviceWord<std::uint16_t>>(scan, thread, threads, lower);
  else if (scan.element_size == 4)
    scan_words<DeviceWord<std::uint32_t>>(scan, thread, threads, lower);
  else
    scan_words<DeviceWord<std::uint64_t>>(scan, thread, threads, lower);
}

// Reduces vectors that several ranks have on one GPU. The result has
// the bits of reduce() in comm/kernels/kernels.h, except those of NaNs, if the compiler does not join
// products and sums.

// outputs[o][i] = op over k of inputs[k][i] * factor. An output may be one of the inputs.
struct PeerReduction {
  const std::byte* inputs[most_peers];
  std::byte* outputs[most_peers];
  std::uint32_t input_count;
  std::uint32_t output_count;
  std::uint64_t count;  // elements
  DType dtype;          // boolean: as uint8
  ReduceOp op;
  double factor;  // of floating-point elements
};

// How elements are stored, and the type with which they are reduced.
template <class Number>
struct PeerElement {
  using Stored = Number;
  using Value = Number;
  FARANDOLE_DEVICE static Value load(Stored stored) { return stored; }
  FARANDOLE_DEVICE static Stored store(Value value) { return value; }
};
template <class Half>
struct PeerHalf {
  using Stored = std::uint16_t;
  using Value = float;
  FARANDOLE_DEVICE static Value load(Stored stored) { return to_float(Half{stored}); }
  FARANDOLE_DEVICE static Stored store(Value value) {
    Half half{};
    from_float(value, half);
    return half.bits;
  }
};
template <>
struct PeerElement<Float16> : PeerHalf<Float16> {};
template <>
struct PeerElement<BFloat16> : PeerHalf<BFloat16> {};

template <class Value>
constexpr bool has_fractions = Value(1) / Value(2) != Value(0);

template <class Value, ReduceOp op>
FARANDOLE_DEVICE constexpr Value combine(Value a, Value b) {
  if constexpr (op == ReduceOp::product) return static_cast<Value>(a * b);
  if constexpr (op == ReduceOp::min) return a <= b || a != a ? a : b;  // a != a: a NaN
  if constexpr (op == ReduceOp::max) return a >= b || a != a ? a : b;
  return static_cast<Value>(a + b);
}

template <class Element, ReduceOp op>
struct PeerReducer {
  using Stored = typename Element::Stored;
  using Value = typename Element::Value;
  using Word [[gnu::may_alias]] = Stored;
  static constexpr std::uint64_t lanes = sizeof(DeviceVector) / sizeof(Stored);
  union Vector {
    DeviceVector whole;
    Stored lane[lanes];
  };

  const PeerReduction& job;

  FARANDOLE_DEVICE Value scaled(Stored stored) const {
    Value value = Element::load(stored);
    if constexpr (has_fractions<Value>)
      if (job.factor != 1) value *= static_cast<Value>(job.factor);
    return value;
  }
  FARANDOLE_DEVICE Stored finished(Value value) const {
    if constexpr (op == ReduceOp::average) value /= static_cast<Value>(job.input_count);
    return Element::store(value);
  }

  FARANDOLE_DEVICE bool aligned() const {
    std::uintptr_t addresses = 0;
    for (std::uint32_t k = 0; k < job.input_count; ++k)
      addresses |= reinterpret_cast<std::uintptr_t>(job.inputs[k]);
    for (std::uint32_t o = 0; o < job.output_count; ++o)
      addresses |= reinterpret_cast<std::uintptr_t>(job.outputs[o]);
    return addresses % sizeof(DeviceVector) == 0;
  }

  FARANDOLE_DEVICE void reduce_vector(std::uint64_t v) const {
    Value sums[lanes]{};
    for (std::uint32_t k = 0; k < job.input_count; ++k) {
      Vector in;
      in.whole = reinterpret_cast<const DeviceVector*>(job.inputs[k])[v];
      for (std::uint64_t i = 0; i < lanes; ++i)
        sums[i] = k == 0 ? scaled(in.lane[i]) : combine<Value, op>(sums[i], scaled(in.lane[i]));
    }
    Vector out;
    for (std::uint64_t i = 0; i < lanes; ++i) out.lane[i] = finished(sums[i]);
    for (std::uint32_t o = 0; o < job.output_count; ++o)
      reinterpret_cast<DeviceVector*>(job.outputs[o])[v] = out.whole;
  }

  FARANDOLE_DEVICE void reduce_element(std::uint64_t i) const {
    Value sum = scaled(reinterpret_cast<const Word*>(job.inputs[0])[i]);
    for (std::uint32_t k = 1; k < job.input_count; ++k)
      sum = combine<Value, op>(sum, scaled(reinterpret_cast<const Word*>(job.inputs[k])[i]));
    for (std::uint32_t o = 0; o < job.output_count; ++o)
      reinterpret_cast<Word*>(job.outputs[o])[i] = finished(sum);
  }
};

// What thread `thread` of `threads` does. Vectors for all operations would triple the compile time.
template <class Element, ReduceOp op>
FARANDOLE_DEVICE void reduce_elements(const PeerReduction& job, std::uint64_t thread, std::uint64_t threads) {
  const PeerReducer<Element, op> reducer{job};
  std::uint64_t done = 0;
  if constexpr (op == ReduceOp::sum || op == ReduceOp::average) {
    const std::uint64_t vectors = reducer.aligned() ? job.count / reducer.lanes : 0;
    for (std::uint64_t v = thread; v < vectors; v += threads) reducer.reduce_vector(v);
    done = vectors * reducer.lanes;
  }
  for (std::uint64_t i = done + thread; i < job.count; i += threads) reducer.reduce_element(i);
}

// Unsigned sums and products have the same bits as signed ones and may wrap around. Integers have no average.
template <class Signed, class Unsigned>
FARANDOLE_DEVICE void reduce_numbers(const PeerReduction& job, std::uint64_t thread, std::uint64_t threads) {
  using Sum = PeerElement<Unsigned>;
  using Order = PeerElement<Signed>;
  switch (job.op) {
    case ReduceOp::sum:
      return reduce_elements<Sum, ReduceOp::sum>(job, thread, threads);
    case ReduceOp::average:
      if constexpr (has_fractions<typename Sum::Value>)
        reduce_elements<Sum, ReduceOp::average>(job, thread, threads);
      return;
    case ReduceOp::min:
      return reduce_elements<Order, ReduceOp::min>(job, thread, threads);
    case ReduceOp::max:
      return reduce_elements<Order, ReduceOp::max>(job, thread, threads);
    case ReduceOp::product:
      return reduce_elements<Sum, ReduceOp::product>(job, thread, threads);
  }
}

FARANDOLE_DEVICE inline void reduce_peers(const PeerReduction& job, std::uint64_t thread,
                                          std::uint64_t threads) {
  switch (job.dtype) {
    case DType::float16:
      return reduce_numbers<Float16, Float16>(job, thread, threads);
    case DType::bfloat16:
      return reduce_numbers<BFloat16, BFloat16>(job, thread, threads);
    case DType::float32:
      return reduce_numbers<float, float>(job, thread, threads);
    case DType::float64:
      return reduce_numbers<double, double>(job, thread, threads);
    case DType::int32:
      return reduce_numbers<std::int32_t, std::uint32_t>(job, thread, threads);
    case DType::int64:
      return reduce_numbers<std::int64_t, std::uint64_t>(job, thread, threads);
    case DType::uint8:
    case DType::boolean:
      return reduce_numbers<std::uint8_t, std::uint8_t>(job, thread, threads);
    case DType::int8:
      return reduce_numbers<std::int8_t, std::int8_t>(job, thread, threads);
    case DType::int16:  // Arithmetic in int: products of the unsigned type could exceed it.
      return reduce_numbers<std::int16_t, std::int16_t>(job, thread, threads);
  }
}

}  // namespace farandole
