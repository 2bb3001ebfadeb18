farandole_script_test(source.unique_types source/unique_types.py 30)
get_property(public_headers GLOBAL PROPERTY FARANDOLE_PUBLIC_HEADERS)
farandole_script_test(source.public_headers source/public_headers.py 30 ${public_headers})
farandole_script_test(source.comments source/comments.py 30)
farandole_script_test(source.docs_links source/docs_links.py 30)
if(FARANDOLE_TORCH)  # the pages' commands train
  farandole_script_test(source.docs_commands source/docs_commands.py 240)
  set_tests_properties(source.docs_commands PROPERTIES LABELS program PROCESSORS 2)
endif()
