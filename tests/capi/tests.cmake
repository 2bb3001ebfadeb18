add_executable(capi_functions capi/functions.c)
target_link_libraries(capi_functions PRIVATE farandole_lib_c Threads::Threads)
farandole_script_test(capi.functions capi/functions.sh 20)
set_tests_properties(capi.functions PROPERTIES PROCESSORS 3)
