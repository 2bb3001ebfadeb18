farandole_test_program(read_table tables/read_table.cc LAYERS tables)
farandole_script_test(tables.command tables/command.sh 40)
set_tests_properties(tables.command PROPERTIES LABELS program)
