# What every target of the project is compiled with, and the two ways to add one.

add_library(farandole_flags INTERFACE)
target_compile_features(farandole_flags INTERFACE cxx_std_20)
# Without -fno-semantic-interposition, nothing is inlined that another library might replace; nobody replaces ours.
target_compile_options(farandole_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
                       -fno-semantic-interposition $<$<BOOL:${FARANDOLE_WERROR}>:-Werror>)
if(FARANDOLE_SANITIZE)
  target_compile_options(farandole_flags INTERFACE -fsanitize=${FARANDOLE_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(farandole_flags INTERFACE -fsanitize=${FARANDOLE_SANITIZE})
endif()

# farandole_layer(NAME USES LAYER... LIBRARIES LIB... EXCLUDE FILE... [ONE_UNIT])
# A folder of src/farandole is a static library farandole_NAME of all its .cc files; USES names the layers below it.
# In unity builds (CMAKE_UNITY_BUILD) each room is one translation unit, with ONE_UNIT the whole layer is.
function(farandole_layer name)
  cmake_parse_arguments(ARG "ONE_UNIT" "" "USES;LIBRARIES;EXCLUDE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  foreach(file IN LISTS ARG_EXCLUDE)
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${name}/${file})
  endforeach()
  foreach(source IN LISTS sources)
    get_filename_component(room ${source} DIRECTORY)
    file(RELATIVE_PATH room ${CMAKE_CURRENT_SOURCE_DIR} ${room})
    if(ARG_ONE_UNIT)
      set(room ${name})
    endif()
    string(MAKE_C_IDENTIFIER ${room} room)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${room})
  endforeach()
  add_library(farandole_${name} STATIC ${sources})
  set_target_properties(farandole_${name} PROPERTIES UNITY_BUILD_MODE GROUP)
  target_include_directories(farandole_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  list(TRANSFORM ARG_USES PREPEND farandole_)
  target_link_libraries(farandole_${name} PUBLIC ${ARG_USES} ${ARG_LIBRARIES} PRIVATE farandole_flags)
endfunction()

# farandole_program(NAME LAYER...) builds tools/NAME.cc into bin/NAME; the target `programs` is all of them.
add_custom_target(programs)
function(farandole_program name)
  string(REPLACE "-" "_" file ${name})
  add_executable(${name} ${file}.cc)
  list(TRANSFORM ARGN PREPEND farandole_)
  target_link_libraries(${name} PRIVATE ${ARGN} farandole_flags)
  set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON)  # stacks name functions
  add_dependencies(programs ${name})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# src/farandole/pmpi as a library that `farandole run --trace-mpi` preloads. It holds its own build of what it uses, none of
# which another library or the program may see or replace.
function(farandole_pmpi_library)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/pmpi/*.cc)
  set(exports ${CMAKE_CURRENT_SOURCE_DIR}/pmpi/exports.map)
  add_library(farandole_pmpi SHARED ${sources})
  target_link_libraries(farandole_pmpi PRIVATE farandole_comm farandole_flags)
  target_link_options(farandole_pmpi PRIVATE -Wl,--version-script=${exports})
  set_target_properties(farandole_pmpi PROPERTIES LINK_DEPENDS ${exports}
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_LIBDIR})
  target_compile_definitions(farandole_pmpi PRIVATE FARANDOLE_VERSION="${PROJECT_VERSION}")
  add_dependencies(programs farandole_pmpi)
  install(TARGETS farandole_pmpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()
