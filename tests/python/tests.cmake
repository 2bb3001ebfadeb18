farandole_script_test(python.exits python/exits.sh 30)
set_tests_properties(python.exits PROPERTIES PROCESSORS 2)
