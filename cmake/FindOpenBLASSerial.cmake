# Finds an OpenBLAS with the C interface, the single-threaded build first.
#
# Target OpenBLASSerial::OpenBLASSerial; variables OpenBLASSerial_FOUND, OpenBLASSerial_LIBRARY,
# OpenBLASSerial_INCLUDE_DIR (set the last two to choose another build). Debian keeps its builds side by side in folders
# named after the variant, and /etc/alternatives decides which one the plain name means; hence the folders.

set(_variants openblas-serial openblas-pthread openblas-openmp openblas)
find_path(OpenBLASSerial_INCLUDE_DIR NAMES cblas.h PATH_SUFFIXES ${_variants})
find_library(OpenBLASSerial_LIBRARY NAMES openblas PATH_SUFFIXES ${_variants})
unset(_variants)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OpenBLASSerial
  REQUIRED_VARS OpenBLASSerial_LIBRARY OpenBLASSerial_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "on Debian: apt-get install libopenblas-serial-dev")

if(OpenBLASSerial_FOUND AND NOT TARGET OpenBLASSerial::OpenBLASSerial)
  add_library(OpenBLASSerial::OpenBLASSerial UNKNOWN IMPORTED)
  set_target_properties(OpenBLASSerial::OpenBLASSerial PROPERTIES
    IMPORTED_LOCATION "${OpenBLASSerial_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${OpenBLASSerial_INCLUDE_DIR}")
  if(OpenBLASSerial_LIBRARY MATCHES "\\.a$")
    find_package(Threads REQUIRED)
    set_property(TARGET OpenBLASSerial::OpenBLASSerial PROPERTY INTERFACE_LINK_LIBRARIES Threads::Threads m)
  endif()
endif()

mark_as_advanced(OpenBLASSerial_LIBRARY OpenBLASSerial_INCLUDE_DIR)
