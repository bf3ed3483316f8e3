# Runs packaging/vcpkg/graphsink/portfile.cmake without vcpkg: stand-ins of the functions that it calls do what these do, with
# the libraries of this machine.
#   cmake -DOUT=FOLDER [-DSOURCES=FOLDER | -DGRAPHSINK_ARCHIVE=FILE] [-DFEATURES=images;ranks] [-DFULL=ON [-DFLAGS=-O0]
#         [-DVCPKG_BUILD_TYPE=release]] -P vcpkg_port.cmake
# Without FULL the sources are configured, and neither built nor installed; with it FOLDER/packages is a package, of Release and,
# without VCPKG_BUILD_TYPE, of Debug, with FLAGS in the place of what CMake compiles these with.
cmake_minimum_required(VERSION 3.25)
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
set(port ${root}/packaging/vcpkg/graphsink)
file(READ ${port}/vcpkg.json manifest)
string(JSON PORT GET ${manifest} name)
string(JSON VERSION GET ${manifest} version)
set(CURRENT_PACKAGES_DIR ${OUT}/packages)
set(configurations Release)
if(FULL AND NOT VCPKG_BUILD_TYPE)
  list(APPEND configurations Debug)
endif()
if(SOURCES)
  set(GRAPHSINK_ARCHIVE ${SOURCES})
endif()

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  # vcpkg looks for options that the project does not have, too.
  if(failed OR output MATCHES "were not used by the project:[\n ]*(CMAKE_[A-Z_]+[\n ]*)*GRAPHSINK_")
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
endfunction()

function(vcpkg_extract_source_archive to archive file)
  if(NOT archive STREQUAL "ARCHIVE")
    message(FATAL_ERROR "expected vcpkg_extract_source_archive(SOURCE_PATH ARCHIVE file)")
  endif()
  if(SOURCES)
    set(${to} ${SOURCES} PARENT_SCOPE)
    return()
  endif()
  file(ARCHIVE_EXTRACT INPUT ${file} DESTINATION ${OUT}/sources)
  file(GLOB folder ${OUT}/sources/*)
  set(${to} ${folder} PARENT_SCOPE)
endfunction()

function(vcpkg_cmake_configure)
  cmake_parse_arguments(arg "" SOURCE_PATH OPTIONS ${ARGN})
  foreach(configuration IN LISTS configurations)
    set(prefix ${CURRENT_PACKAGES_DIR})
    if(configuration STREQUAL "Debug")
      set(prefix ${CURRENT_PACKAGES_DIR}/debug)
    endif()
    string(TOUPPER ${configuration} upper)
    set(flags "")
    if(FLAGS)
      set(flags "-DCMAKE_CXX_FLAGS_${upper}=${FLAGS}")
    endif()
    run(${CMAKE_COMMAND} -G Ninja -S ${arg_SOURCE_PATH} -B ${OUT}/${configuration} -DCMAKE_BUILD_TYPE=${configuration}
        -DCMAKE_INSTALL_PREFIX=${prefix} -DBUILD_SHARED_LIBS=OFF -DCMAKE_INSTALL_LIBDIR:STRING=lib
        -DCMAKE_EXPORT_NO_PACKAGE_REGISTRY=ON -DCMAKE_ERROR_ON_ABSOLUTE_INSTALL_DESTINATION=ON
        ${flags} ${arg_OPTIONS})
  endforeach()
endfunction()

function(vcpkg_cmake_install)
  foreach(configuration IN LISTS configurations)
    if(FULL)
      run(${CMAKE_COMMAND} --build ${OUT}/${configuration} --parallel 2)
      run(${CMAKE_COMMAND} --install ${OUT}/${configuration})
    endif()
  endforeach()
endfunction()

# Both configurations have one package, in share/, two folders below the prefix.
function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(arg "" CONFIG_PATH "" ${ARGN})
  if(NOT FULL)
    return()
  endif()
  set(share ${CURRENT_PACKAGES_DIR}/share/${PORT})
  file(GLOB_RECURSE files RELATIVE ${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH} ${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}/*)
  foreach(file IN LISTS files)
    file(READ ${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}/${file} text)
    if(file MATCHES "[.]cmake$")
      string(REGEX REPLACE "(PACKAGE_PREFIX_DIR \"[$]{CMAKE_CURRENT_LIST_DIR})(/[.][.])+/?\"" "\\1/../../\"" text "${text}")
      # Of the lines that climb to the prefix, one is left out, because the folder lies one higher.
      string(REPLACE "get_filename_component(_IMPORT_PREFIX \"\${_IMPORT_PREFIX}\" PATH)\nget_filename_component(_IMPORT_PREFIX \"\${_IMPORT_PREFIX}\" PATH)\n"
             "get_filename_component(_IMPORT_PREFIX \"\${_IMPORT_PREFIX}\" PATH)\n" text "${text}")
    endif()
    file(WRITE ${share}/${file} "${text}")
  endforeach()
  file(GLOB debug RELATIVE ${CURRENT_PACKAGES_DIR}/debug/${arg_CONFIG_PATH} ${CURRENT_PACKAGES_DIR}/debug/${arg_CONFIG_PATH}/*-debug.cmake)
  foreach(file IN LISTS debug)
    file(READ ${CURRENT_PACKAGES_DIR}/debug/${arg_CONFIG_PATH}/${file} text)
    string(REPLACE "\${_IMPORT_PREFIX}/lib" "\${_IMPORT_PREFIX}/debug/lib" text "${text}")
    file(WRITE ${share}/${file} "${text}")
  endforeach()
  file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/lib/cmake ${CURRENT_PACKAGES_DIR}/debug/lib/cmake)
endfunction()

function(vcpkg_fixup_pkgconfig)
  if(FULL)
    find_program(pkg_config pkg-config REQUIRED)
    run(${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${CURRENT_PACKAGES_DIR}/lib/pkgconfig ${pkg_config} --exists --print-errors graphsink)
  endif()
endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(arg "" "" FILE_LIST ${ARGN})
  foreach(file IN LISTS arg_FILE_LIST)  # vcpkg joins them, too
    file(READ ${file} text)
    file(APPEND ${CURRENT_PACKAGES_DIR}/share/${PORT}/copyright "${text}")
  endforeach()
endfunction()

include(${port}/portfile.cmake)
