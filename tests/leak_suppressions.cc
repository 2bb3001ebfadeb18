// What LeakSanitizer is to overlook: HDF5 1.10 loses memory where it refuses a damaged file.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libhdf5\n";
}
