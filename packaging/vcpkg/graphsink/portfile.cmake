# The archive of packaging/source_archive.sh lies beside this file, or a triplet names it by GRAPHSINK_ARCHIVE, a path or a
# URL, and a URL's hash by GRAPHSINK_SHA512. packaging/README.md says how to use the port, and what has been tried.
if(NOT DEFINED GRAPHSINK_ARCHIVE)
  set(GRAPHSINK_ARCHIVE "${CMAKE_CURRENT_LIST_DIR}/graphsink-${VERSION}.tar.xz")
endif()
if(GRAPHSINK_ARCHIVE MATCHES "://")
  vcpkg_download_distfile(GRAPHSINK_ARCHIVE URLS "${GRAPHSINK_ARCHIVE}" FILENAME "graphsink-${VERSION}.tar.xz"
                          SHA512 "${GRAPHSINK_SHA512}")
elseif(NOT EXISTS "${GRAPHSINK_ARCHIVE}")
  message(FATAL_ERROR "there is no ${GRAPHSINK_ARCHIVE}: put the archive of packaging/source_archive.sh beside portfile.cmake, "
                      "or set GRAPHSINK_ARCHIVE in a triplet")
endif()
vcpkg_extract_source_archive(SOURCE_PATH ARCHIVE "${GRAPHSINK_ARCHIVE}")

set(options -DGRAPHSINK_FLAVOUR=cpu -DGRAPHSINK_IMAGES=OFF -DGRAPHSINK_RANKS=OFF)
if("cuda" IN_LIST FEATURES)
  list(APPEND options -DGRAPHSINK_FLAVOUR=cuda)
endif()
if("images" IN_LIST FEATURES)
  list(APPEND options -DGRAPHSINK_IMAGES=ON)
endif()
if("ranks" IN_LIST FEATURES)
  list(APPEND options -DGRAPHSINK_RANKS=ON)
endif()
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${options} -DGRAPHSINK_PYTHON=OFF -DGRAPHSINK_BUILD_TESTS=OFF -DGRAPHSINK_BUILD_SAMPLES=OFF -DCMAKE_UNITY_BUILD=ON)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/graphsink)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share" "${CURRENT_PACKAGES_DIR}/share/doc")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
# Of what is compiled in; the others are those of the Python package.
file(GLOB licenses "${SOURCE_PATH}/packaging/licenses/*.txt")
list(FILTER licenses EXCLUDE REGEX "/(nanobind|robin-map)\\.txt$")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE" ${licenses})
