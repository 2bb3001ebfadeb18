// MPI's functions under the names that the program calls, generated from the table. Each one
// calls its PMPI_ function and records the call.
// Thread safety: any thread may call this at any time. MPI limits this as for its own functions.
#include <mpi.h>
#include <tuple>

#include "farandole/pmpi/recorded_call.h"
#include "farandole/pmpi/shapes.h"

namespace farandole::pmpi {

constinit std::atomic<const MpiTraceSink*> sink{nullptr};
constinit thread_local bool RecordedCall::inside_ = false;

RecordedCall::RecordedCall(Category category, const char* name) noexcept
    : sink_(sink.load(std::memory_order_acquire)) {
  if (sink_ == nullptr || inside_ || !sink_->begin(sink_->timeline, category, name, span_)) return;
  begun_ = inside_ = true;
}

namespace {

template <class Function>
struct ParametersOf;
template <class... Types>
struct ParametersOf<int(Types...)> {
  template <std::size_t i>
  using Type = typename std::tuple_element_t<i, std::tuple<std::type_identity<Types>...>>::type;
};
// The parameter types as mpi.h declares them.
template <class Function, std::size_t i>
using Parameter = typename ParametersOf<Function>::template Type<i>;

}  // namespace

#define P(name, i) Parameter<decltype(PMPI_##name), i> a##i
#define P1(n) P(n, 0)
#define P2(n) P1(n), P(n, 1)
#define P3(n) P2(n), P(n, 2)
#define P4(n) P3(n), P(n, 3)
#define P5(n) P4(n), P(n, 4)
#define P6(n) P5(n), P(n, 5)
#define P7(n) P6(n), P(n, 6)
#define P8(n) P7(n), P(n, 7)
#define P9(n) P8(n), P(n, 8)
#define P10(n) P9(n), P(n, 9)
#define P11(n) P10(n), P(n, 10)
#define P12(n) P11(n), P(n, 11)
#define P13(n) P12(n), P(n, 12)
#define A1 a0
#define A2 A1, a1
#define A3 A2, a2
#define A4 A3, a3
#define A5 A4, a4
#define A6 A5, a5
#define A7 A6, a6
#define A8 A7, a7
#define A9 A8, a8
#define A10 A9, a9
#define A11 A10, a10
#define A12 A11, a11
#define A13 A12, a12

#define FARANDOLE_WRAP(category, name, count, Shape)                    \
  extern "C" int MPI_##name(P##count(name)) {                           \
    return call<Shape>(category, "MPI_" #name, &PMPI_##name, A##count); \
  }
#define FARANDOLE_MPI_CALL(name, count, Shape) FARANDOLE_WRAP(Category::communication, name, count, Shape)
#define FARANDOLE_MPI_OTHER_CALL(name, count, Shape) FARANDOLE_WRAP(Category::other, name, count, Shape)
#include "farandole/comm/mpi/mpi_calls.inc"

}  // namespace farandole::pmpi

extern "C" void farandole_trace_mpi_calls_3(const farandole::MpiTraceSink* sink) {
  farandole::pmpi::sink.store(sink, std::memory_order_release);
}
