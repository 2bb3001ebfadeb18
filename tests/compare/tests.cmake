# Programs of tests/compare/nodes.
if(NOT FARANDOLE_SANITIZE)
  add_executable(signature_cost compare/signature_cost.cc)
  target_link_libraries(signature_cost PRIVATE farandole_comm farandole_flags)
endif()
if(FARANDOLE_TORCH)
  add_executable(first_step compare/first_step.cc)
  target_link_libraries(first_step PRIVATE farandole_train farandole_flags)
  set_target_properties(first_step PROPERTIES EXCLUDE_FROM_ALL TRUE)  # LibTorch's headers take long
endif()
