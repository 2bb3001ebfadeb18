farandole_script_test(source.unique_types source/unique_types.py 2)
get_property(public_headers GLOBAL PROPERTY FARANDOLE_PUBLIC_HEADERS)
farandole_script_test(source.public_headers source/public_headers.py 2 ${public_headers})
farandole_script_test(source.c_interface source/c_interface.py 2)
farandole_script_test(source.rooms source/rooms.py 2)
farandole_script_test(source.comments source/comments.py 5)
farandole_script_test(source.docs_links source/docs_links.py 10)
set_tests_properties(source.unique_types source.public_headers source.c_interface source.rooms source.comments source.docs_links PROPERTIES LABELS logic)
if(FARANDOLE_TORCH)  # the pages' commands train
  farandole_script_test(source.docs_commands source/docs_commands.py 100)
  set_tests_properties(source.docs_commands PROPERTIES LABELS "program;soak" PROCESSORS 2)  # of all pages, for minutes
endif()
