// What the sanitizers are told: to show where undefined behaviour trapped, and to overlook that HDF5 1.10
// loses memory where it refuses a damaged file.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "handle_sigill=1";
}
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libhdf5\n";
}
