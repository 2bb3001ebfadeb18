// What the sanitizers are told: to show where undefined behaviour trapped, and to overlook that HDF5 1.10
// loses memory where it refuses a damaged file. Thread-local memory of loaded libraries is not searched for
// pointers: the runtime of LLVM 14 guesses its bounds from what lies before it, and takes the size of a block
// for an address where the block begins a page.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "handle_sigill=1:intercept_tls_get_addr=0";
}
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libhdf5\n";
}
