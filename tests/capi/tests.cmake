add_executable(capi_functions capi/functions.c)
target_link_libraries(capi_functions PRIVATE farandole_lib_c Threads::Threads)
add_executable(capi_gradients capi/gradients.c)
target_link_libraries(capi_gradients PRIVATE farandole_lib_c Threads::Threads m)
add_executable(capi_foreign_mpi capi/foreign_mpi.c)
target_link_libraries(capi_foreign_mpi PRIVATE farandole_lib_c MPI::MPI_C)
farandole_script_test(capi.functions capi/functions.sh 20)
farandole_script_test(capi.gradients capi/gradients.sh 30)
set_tests_properties(capi.functions capi.gradients PROPERTIES PROCESSORS 3 LABELS program)  # C programs are linked without a sanitizer
