# Finds an OpenBLAS with the C interface. The pthread build is preferred: Debian's single-threaded build takes no locks,
# so it gives wrong results when two threads multiply at the same time.
#
# Defines the target OpenBLAS::OpenBLAS and the variables OpenBLAS_FOUND, OpenBLAS_LIBRARY and OpenBLAS_INCLUDE_DIR. Set
# the last two to choose another build. Debian keeps its builds side by side in folders named after the variant, and
# /etc/alternatives decides which one the plain name means. Therefore the folders are searched.

set(_variants openblas-pthread openblas-openmp openblas)
find_path(OpenBLAS_INCLUDE_DIR NAMES cblas.h PATH_SUFFIXES ${_variants})
find_library(OpenBLAS_LIBRARY NAMES openblas PATH_SUFFIXES ${_variants})
unset(_variants)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpenBLAS
  REQUIRED_VARS OpenBLAS_LIBRARY OpenBLAS_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "on Debian: apt-get install libopenblas-pthread-dev")

if(OpenBLAS_FOUND AND NOT TARGET OpenBLAS::OpenBLAS)
  add_library(OpenBLAS::OpenBLAS UNKNOWN IMPORTED)
  set_target_properties(OpenBLAS::OpenBLAS PROPERTIES
    IMPORTED_LOCATION "${OpenBLAS_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${OpenBLAS_INCLUDE_DIR}")
  if(OpenBLAS_LIBRARY MATCHES "\\.a$")
    find_package(Threads REQUIRED)
    set_property(TARGET OpenBLAS::OpenBLAS PROPERTY INTERFACE_LINK_LIBRARIES Threads::Threads m)
  endif()
endif()

mark_as_advanced(OpenBLAS_LIBRARY OpenBLAS_INCLUDE_DIR)
