add_executable(read_table tables/read_table.cc)
target_link_libraries(read_table PRIVATE farandole_tables farandole_flags)
farandole_script_test(tables.command tables/command.sh 120)
set_tests_properties(tables.command PROPERTIES LABELS program)
