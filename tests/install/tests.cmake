if(NOT FARANDOLE_SANITIZE)  # whose runtime the examples would have to be linked with
  get_property(public_headers GLOBAL PROPERTY FARANDOLE_PUBLIC_HEADERS)
  farandole_script_test(install install/install.sh 150 ${public_headers})
  set_tests_properties(install PROPERTIES LABELS "program;soak" PROCESSORS 2)  # compiles what users compile, for minutes
endif()
