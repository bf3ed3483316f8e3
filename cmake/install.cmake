# install(), and what find_package(graphsink) reads.
include(CMakePackageConfigHelpers)
set(GRAPHSINK_TARGETS graphsink graphsink_base graphsink_ir graphsink_passes graphsink_device graphsink_kernels
    graphsink_build graphsink_exec graphsink_api graphsink_loader graphsink_checkpoint)
if(NOT GRAPHSINK_FLAVOUR STREQUAL "emulated")  # the software device is for this project's tests only
  install(TARGETS ${GRAPHSINK_TARGETS} EXPORT graphsinkTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY include/graphsink DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  set(GRAPHSINK_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/graphsink)
  install(EXPORT graphsinkTargets NAMESPACE graphsink:: DESTINATION ${GRAPHSINK_CMAKE_DIR})
  configure_package_config_file(cmake/graphsinkConfig.cmake.in ${CMAKE_BINARY_DIR}/graphsinkConfig.cmake
                                INSTALL_DESTINATION ${GRAPHSINK_CMAKE_DIR})
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/graphsinkConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/graphsinkConfig.cmake ${CMAKE_BINARY_DIR}/graphsinkConfigVersion.cmake
                cmake/FindOpenBLAS.cmake DESTINATION ${GRAPHSINK_CMAKE_DIR})
endif()
