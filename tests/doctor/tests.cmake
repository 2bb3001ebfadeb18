# Jobs that fail, and the doctor's reports about them.
farandole_test_program(doomed_program doctor/doomed_program.cc LAYERS comm launch)
foreach(script IN ITEMS runs copies installation node_recorders)
  farandole_script_test(doctor.${script} doctor/${script}.sh 20)
endforeach()
set_tests_properties(doctor.installation doctor.node_recorders PROPERTIES LABELS logic)
set_tests_properties(doctor.copies PROPERTIES LABELS "random;logic")
# Jobs as users run them. Their verdicts depend on times; therefore they do not run beside other
# jobs or with sanitizers.
set_tests_properties(doctor.runs PROPERTIES LABELS program RUN_SERIAL TRUE)
# It includes the namespace farandole::testing, which hides ::testing in the other files of a unity build.
set_source_files_properties(doctor/injected_causes_test.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
