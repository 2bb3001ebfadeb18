farandole_script_test(tools.site tools/site.sh 1)
set_tests_properties(tools.site PROPERTIES LABELS logic)
# Damaged files for all commands that read. Its damage is random, and it takes minutes.
if(FARANDOLE_TORCH)
  farandole_script_test(tools.mutated_files tools/mutated_files.py 250)
  set_tests_properties(tools.mutated_files PROPERTIES LABELS "program;soak" PROCESSORS 2)
endif()
