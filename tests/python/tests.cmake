farandole_script_test(python.exits python/exits.sh 30)
set_tests_properties(python.exits PROPERTIES PROCESSORS 2)
farandole_script_test(python.faults python/faults.sh 60)
set_tests_properties(python.faults PROPERTIES PROCESSORS 2)
