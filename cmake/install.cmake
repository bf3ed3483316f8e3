# install(), and what find_package(graphsink) reads.
include(CMakePackageConfigHelpers)
set(GRAPHSINK_TARGETS graphsink graphsink_base graphsink_ir graphsink_passes graphsink_device graphsink_kernels
    graphsink_build graphsink_exec graphsink_api graphsink_loader graphsink_checkpoint)
if(GRAPHSINK_FLAVOUR STREQUAL "emulated")
  list(APPEND GRAPHSINK_TARGETS graphsink_cuda_emulator)
endif()
set(GRAPHSINK_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/graphsink)
install(TARGETS ${GRAPHSINK_TARGETS} EXPORT graphsinkTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/graphsink DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT graphsinkTargets NAMESPACE graphsink:: DESTINATION ${GRAPHSINK_CMAKE_DIR})
configure_package_config_file(cmake/graphsinkConfig.cmake.in ${CMAKE_BINARY_DIR}/graphsinkConfig.cmake
                              INSTALL_DESTINATION ${GRAPHSINK_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/graphsinkConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/graphsinkConfig.cmake ${CMAKE_BINARY_DIR}/graphsinkConfigVersion.cmake
              cmake/FindOpenBLAS.cmake cmake/device_sources.cmake DESTINATION ${GRAPHSINK_CMAKE_DIR})
if(GRAPHSINK_FLAVOUR STREQUAL "cpu")
  install(FILES kernels/support/host_builtins.h DESTINATION ${GRAPHSINK_CMAKE_DIR})
elseif(GRAPHSINK_FLAVOUR STREQUAL "emulated")
  install(FILES tests/cuda_emulator/simt.h tests/cuda_emulator/simt_math.h DESTINATION ${GRAPHSINK_CMAKE_DIR})
endif()
