# What every target of the project is compiled with, and the ways to add one.

add_library(farandole_flags INTERFACE)
target_compile_features(farandole_flags INTERFACE cxx_std_20)
# Without -fno-semantic-interposition, nothing is inlined that another library might replace; nobody replaces ours.
target_compile_options(farandole_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
                       -fno-semantic-interposition $<$<BOOL:${FARANDOLE_WERROR}>:-Werror>)
# The other linker of the binutils, which later versions lack, links a program with LibTorch in 0.7 s instead of 2 s. In
# libraries it does not hide all symbols that a version script hides.
find_program(GOLD ld.gold)
if(CMAKE_UNITY_BUILD AND GOLD)
  target_link_options(farandole_flags INTERFACE $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-fuse-ld=gold>)
endif()
if(FARANDOLE_SANITIZE)
  # Traps instead of calls that print what is wrong make this build a third quicker. AddressSanitizer shows
  # where a trap is (handle_sigill).
  target_compile_options(farandole_flags INTERFACE -fsanitize=${FARANDOLE_SANITIZE} -fno-omit-frame-pointer
                         -fsanitize-undefined-trap-on-error)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # Functions of a library that is loaded have no types that Clang could compare.
    target_compile_options(farandole_flags INTERFACE -fno-sanitize=function)
    if(FARANDOLE_SANITIZE MATCHES address)
      # Our library for MPI calls is preloaded to programs without the sanitizer, and so must bring it.
      execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-runtime-dir OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE)
      target_link_options(farandole_flags INTERFACE -shared-libsan -Wl,-rpath,${folder})
    endif()
  endif()
  target_compile_definitions(farandole_flags INTERFACE FARANDOLE_SANITIZED)
  target_link_options(farandole_flags INTERFACE -fsanitize=${FARANDOLE_SANITIZE})
endif()

# farandole_precompile(TARGET [HEADER...]): in unity builds, parses the headers that nearly all units include, and HEADERS, once
# for all targets that name the same HEADERS. Developers build file by file, where this would hide a missing include.
# All these targets need the same flags. CMake would compile programs with -fPIE and libraries with -fPIC, and define a symbol
# named after each target that exports.
function(farandole_precompile target)
  if(NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  string(MAKE_C_IDENTIFIER "FARANDOLE_PRECOMPILED_${ARGN}" property)
  get_property(owner GLOBAL PROPERTY ${property})
  if(owner)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  else()
    target_precompile_headers(${target} PRIVATE
      <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <csignal> <cstdint> <cstring> <exception> <filesystem>
      <fstream> <functional> <iostream> <map> <memory> <mutex> <numeric> <optional> <random> <set> <span> <sstream> <string>
      <string_view> <thread> <tuple> <unordered_map> <utility> <variant> <vector>
      <boost/program_options.hpp> <fmt/format.h> <fmt/ranges.h> <nlohmann/json.hpp> ${ARGN})
    set_property(GLOBAL PROPERTY ${property} ${target})
  endif()
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF DEFINE_SYMBOL "")
  target_compile_options(${target} PRIVATE -fPIC)
endfunction()

# farandole_layer(NAME USES LAYER... LIBRARIES LIB... HEADERS_FIRST FOLDER EXCLUDE FILE... WRITERS ROOM... [ONE_UNIT])
# A folder of src/farandole is a static library farandole_NAME of all its .cc files; USES names the layers below it. Headers in
# HEADERS_FIRST are found before those of other libraries.
# In unity builds (CMAKE_UNITY_BUILD) each room is one translation unit, with ONE_UNIT the whole layer is. The rooms in WRITERS
# are a unit of their own, compiled with -O1: they write text, so they are short on loops and long to compile.
function(farandole_layer name)
  cmake_parse_arguments(ARG "ONE_UNIT" "HEADERS_FIRST" "USES;LIBRARIES;EXCLUDE;WRITERS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  foreach(file IN LISTS ARG_EXCLUDE)
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${name}/${file})
  endforeach()
  foreach(source IN LISTS sources)
    get_filename_component(room ${source} DIRECTORY)
    file(RELATIVE_PATH room ${CMAKE_CURRENT_SOURCE_DIR} ${room})
    string(REGEX REPLACE "^${name}/" "" inner ${room})
    if(inner IN_LIST ARG_WRITERS)
      set(room ${name}_writers)
    elseif(ARG_ONE_UNIT)
      set(room ${name})
    endif()
    string(MAKE_C_IDENTIFIER ${room} room)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${room})
  endforeach()
  add_library(farandole_${name} STATIC ${sources})
  set_target_properties(farandole_${name} PROPERTIES UNITY_BUILD_MODE GROUP)
  if(ARG_WRITERS)
    set_source_files_properties(${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/farandole_${name}.dir/Unity/unity_${name}_writers_cxx.cxx
                                PROPERTIES COMPILE_OPTIONS $<$<CONFIG:RelWithDebInfo>:-O1>)
  endif()
  if(ARG_HEADERS_FIRST)
    target_include_directories(farandole_${name} SYSTEM BEFORE PRIVATE ${ARG_HEADERS_FIRST})
  endif()
  target_include_directories(farandole_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  list(TRANSFORM ARG_USES PREPEND farandole_)
  target_link_libraries(farandole_${name} PUBLIC ${ARG_USES} ${ARG_LIBRARIES} PRIVATE farandole_flags)
  farandole_precompile(farandole_${name})
endfunction()

# farandole_program(NAME LAYER... [SOURCE FILE]) builds tools/NAME.cc, or FILE, into bin/NAME; the target `programs` is all of them. They only read
# options and call a layer, so they are compiled with -O1.
add_custom_target(programs)
function(farandole_program name)
  cmake_parse_arguments(ARG "" "SOURCE" "" ${ARGN})
  if(NOT ARG_SOURCE)
    string(REPLACE "-" "_" ARG_SOURCE ${name}.cc)
  endif()
  add_executable(${name} ${ARG_SOURCE})
  list(TRANSFORM ARG_UNPARSED_ARGUMENTS PREPEND farandole_)
  target_link_libraries(${name} PRIVATE ${ARG_UNPARSED_ARGUMENTS} farandole_flags)
  target_compile_options(${name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  set_target_properties(${name} PROPERTIES ENABLE_EXPORTS ON)  # stacks name functions
  farandole_precompile(${name})
  add_dependencies(programs ${name})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  set_property(GLOBAL APPEND PROPERTY FARANDOLE_PROGRAMS ${name})
endfunction()

# farandole_library(NAME USES LIBRARY... LAYERS LAYER... LIBRARIES LIB... HEADERS FILE... [EXPORTS FILE])
# A shared library libfarandole_NAME of the layers' objects, which are not compiled again; users link Farandole::NAME and
# include the HEADERS. USES names libraries made before, LIBRARIES what the headers need; all else that the layers need is
# linked and hidden, as EXPORTS says. The target `libraries` is all of them; no program needs them but libfarandole_c.
add_custom_target(libraries)
function(farandole_library name)
  cmake_parse_arguments(ARG "" "EXPORTS" "USES;LAYERS;LIBRARIES;HEADERS" ${ARGN})
  set(target farandole_lib_${name})
  if(NOT ARG_EXPORTS)
    set(ARG_EXPORTS exports.map)
  endif()
  set(exports ${PROJECT_SOURCE_DIR}/tools/cmake/${ARG_EXPORTS})
  add_library(${target} SHARED)
  foreach(layer IN LISTS ARG_LAYERS)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:farandole_${layer}>)
  endforeach()
  list(TRANSFORM ARG_USES PREPEND farandole_lib_ OUTPUT_VARIABLE used)
  list(TRANSFORM ARG_LAYERS PREPEND farandole_ OUTPUT_VARIABLE layers)
  # The libraries before the archives, so that nothing of theirs is linked a second time.
  target_link_libraries(${target} PUBLIC ${used} ${ARG_LIBRARIES} PRIVATE ${layers})
  target_link_options(${target} PRIVATE -Wl,--version-script=${exports})
  if(FARANDOLE_SANITIZE)
    target_link_options(${target} PRIVATE -fsanitize=${FARANDOLE_SANITIZE})
  else()
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()
  target_compile_features(${target} INTERFACE cxx_std_20)
  list(TRANSFORM ARG_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/src/farandole/ OUTPUT_VARIABLE headers)
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/src FILES ${headers})
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME farandole_${name} EXPORT_NAME ${name} LINKER_LANGUAGE CXX LINK_DEPENDS ${exports}
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_LIBDIR} INSTALL_RPATH "$ORIGIN")
  add_dependencies(libraries ${target})
  install(TARGETS ${target} EXPORT Farandole-${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
          FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  set_property(GLOBAL APPEND PROPERTY FARANDOLE_LIBRARIES ${name})
  set_property(GLOBAL APPEND PROPERTY FARANDOLE_PUBLIC_HEADERS ${ARG_HEADERS})

  # For those who do not use CMake. LibTorch has no file for pkg-config, so its flags stand in ours.
  list(TRANSFORM ARG_USES PREPEND farandole- OUTPUT_VARIABLE requires)
  list(JOIN requires " " requires)
  if("Torch::cpu" IN_LIST ARG_LIBRARIES)
    set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH ${TorchCpu_FOLDER}/lib)
    set(cflags "-idirafter \${torch}/include -idirafter \${torch}/include/torch/csrc/api/include")
    set(libs "-L\${torch}/lib -Wl,-rpath,\${torch}/lib -Wl,--no-as-needed -ltorch_cpu -lc10 -rdynamic")
  endif()
  set(folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  file(RELATIVE_PATH prefix_from_pc ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
  string(REGEX REPLACE "/$" "" prefix_from_pc ${prefix_from_pc})
  configure_file(${PROJECT_SOURCE_DIR}/tools/cmake/farandole.pc.in ${PROJECT_BINARY_DIR}/package/farandole-${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/package/farandole-${name}.pc DESTINATION ${folder})
endfunction()

# What find_package(Farandole) reads, of all libraries made before.
function(farandole_package)
  include(CMakePackageConfigHelpers)
  set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/Farandole)
  get_property(FARANDOLE_LIBRARIES GLOBAL PROPERTY FARANDOLE_LIBRARIES)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/tools/cmake/FarandoleConfig.cmake.in
                                ${PROJECT_BINARY_DIR}/package/FarandoleConfig.cmake INSTALL_DESTINATION ${folder})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/FarandoleConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/package/FarandoleConfig.cmake ${PROJECT_BINARY_DIR}/package/FarandoleConfigVersion.cmake
                ${PROJECT_SOURCE_DIR}/tools/cmake/FindTorchCpu.cmake DESTINATION ${folder})
  foreach(name IN LISTS FARANDOLE_LIBRARIES)
    install(EXPORT Farandole-${name} NAMESPACE Farandole:: DESTINATION ${folder})
  endforeach()
endfunction()

# src/farandole/pmpi as a library that `farandole run --trace-mpi` preloads. It holds its own build of what it uses, none of
# which another library or the program may see or replace.
function(farandole_pmpi_library)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/pmpi/*.cc)
  set(exports ${CMAKE_CURRENT_SOURCE_DIR}/pmpi/exports.map)
  add_library(farandole_pmpi SHARED ${sources})
  target_link_libraries(farandole_pmpi PRIVATE farandole_comm farandole_flags)
  farandole_precompile(farandole_pmpi)
  target_link_options(farandole_pmpi PRIVATE -Wl,--version-script=${exports})
  set_target_properties(farandole_pmpi PROPERTIES LINK_DEPENDS ${exports}
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${CMAKE_INSTALL_LIBDIR})
  add_dependencies(programs farandole_pmpi)
  install(TARGETS farandole_pmpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

# A manual page for each program made so far, from its --help, where there is help2man. Target: man.
function(farandole_man_pages)
  find_program(HELP2MAN help2man)
  if(NOT HELP2MAN)
    message(STATUS "No manual pages, because help2man was not found")
    return()
  endif()
  get_property(programs GLOBAL PROPERTY FARANDOLE_PROGRAMS)
  set(folder ${PROJECT_BINARY_DIR}/man)
  file(MAKE_DIRECTORY ${folder})
  foreach(program IN LISTS programs)
    add_custom_command(OUTPUT ${folder}/${program}.1
      COMMAND ${PROJECT_SOURCE_DIR}/tools/cmake/man_page ${HELP2MAN} $<TARGET_FILE:farandole> $<TARGET_FILE:${program}> ${folder}
      DEPENDS farandole ${program} ${PROJECT_SOURCE_DIR}/tools/cmake/man_page ${PROJECT_SOURCE_DIR}/docs/training.md VERBATIM)
    list(APPEND pages ${folder}/${program}.1)
  endforeach()
  add_custom_target(man ALL DEPENDS ${pages})
  install(DIRECTORY ${folder}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
endfunction()
