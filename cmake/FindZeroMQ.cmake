# Finds ZeroMQ. Defines the target ZeroMQ::ZeroMQ and the variables ZeroMQ_FOUND, ZeroMQ_LIBRARY and ZeroMQ_INCLUDE_DIR. Set
# the last two to choose another build. With the component CXX its header for C++, zmq.hpp, has to be there, too.

find_path(ZeroMQ_INCLUDE_DIR NAMES zmq.h)
find_library(ZeroMQ_LIBRARY NAMES zmq)
set(_required ZeroMQ_LIBRARY ZeroMQ_INCLUDE_DIR)
if("CXX" IN_LIST ZeroMQ_FIND_COMPONENTS)
  find_path(ZeroMQ_CXX_INCLUDE_DIR NAMES zmq.hpp HINTS ${ZeroMQ_INCLUDE_DIR})
  list(APPEND _required ZeroMQ_CXX_INCLUDE_DIR)
  if(ZeroMQ_CXX_INCLUDE_DIR)
    set(ZeroMQ_CXX_FOUND TRUE)
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ZeroMQ
  REQUIRED_VARS ${_required} HANDLE_COMPONENTS
  REASON_FAILURE_MESSAGE "on Debian: apt-get install libzmq3-dev cppzmq-dev")

if(ZeroMQ_FOUND AND NOT TARGET ZeroMQ::ZeroMQ)
  add_library(ZeroMQ::ZeroMQ UNKNOWN IMPORTED)
  set_target_properties(ZeroMQ::ZeroMQ PROPERTIES
    IMPORTED_LOCATION "${ZeroMQ_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${ZeroMQ_INCLUDE_DIR};${ZeroMQ_CXX_INCLUDE_DIR}")
endif()
unset(_required)

mark_as_advanced(ZeroMQ_LIBRARY ZeroMQ_INCLUDE_DIR ZeroMQ_CXX_INCLUDE_DIR)
