# The install() rules, and the files that find_package(graphsink) reads.
include(CMakePackageConfigHelpers)
set(GRAPHSINK_TARGETS graphsink graphsink_base graphsink_ir graphsink_passes graphsink_device graphsink_kernels
    graphsink_build graphsink_exec graphsink_api graphsink_capture graphsink_loader graphsink_checkpoint)
set(GRAPHSINK_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/graphsink)
install(DIRECTORY include/graphsink DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# The header that graphsink_device_sources() includes before the .cu files of other projects.
set(GRAPHSINK_INSTALLED_PRELUDE "")
if(GRAPHSINK_FLAVOUR STREQUAL "cpu")
  install(FILES kernels/support/host_builtins.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/graphsink/support)
  set(GRAPHSINK_INSTALLED_PRELUDE ${CMAKE_INSTALL_INCLUDEDIR}/graphsink/support/host_builtins.h)
elseif(GRAPHSINK_FLAVOUR STREQUAL "emulated")
  list(APPEND GRAPHSINK_TARGETS graphsink_cuda_emulator)
  install(FILES tests/cuda_emulator/simt.h tests/cuda_emulator/simt_launch.h tests/cuda_emulator/simt_math.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/graphsink/emulator)
  set(GRAPHSINK_INSTALLED_PRELUDE ${CMAKE_INSTALL_INCLUDEDIR}/graphsink/emulator/simt.h)
endif()
install(TARGETS ${GRAPHSINK_TARGETS} EXPORT graphsinkTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT graphsinkTargets NAMESPACE graphsink:: DESTINATION ${GRAPHSINK_CMAKE_DIR})
configure_package_config_file(cmake/graphsinkConfig.cmake.in ${CMAKE_BINARY_DIR}/graphsinkConfig.cmake
                              INSTALL_DESTINATION ${GRAPHSINK_CMAKE_DIR} PATH_VARS GRAPHSINK_INSTALLED_PRELUDE)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/graphsinkConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/graphsinkConfig.cmake ${CMAKE_BINARY_DIR}/graphsinkConfigVersion.cmake
              cmake/FindOpenBLAS.cmake cmake/device_sources.cmake DESTINATION ${GRAPHSINK_CMAKE_DIR})
