# The program's own MPI calls in the timeline.
add_executable(calling_program pmpi/calling_program.cc)
target_link_libraries(calling_program PRIVATE MPI::MPI_C farandole_flags)
target_compile_definitions(calling_program PRIVATE OMPI_SKIP_MPICXX)
farandole_test_program(session_program pmpi/session_program.cc LAYERS comm)
farandole_script_test(pmpi.calls pmpi/calls.sh 100)
farandole_script_test(pmpi.recorder_space pmpi/recorder_space.sh 10)
# The library is built from the sources of comm, whose cases run with sanitizers.
set_tests_properties(pmpi.calls PROPERTIES LABELS program)
set_tests_properties(pmpi.recorder_space PROPERTIES LABELS logic)
