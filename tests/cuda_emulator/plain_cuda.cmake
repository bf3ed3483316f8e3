# graphsink_emulate_plain_cuda(target): compiles the .cu files of a target for the software device that are written for
# nvcc alone, with kernel<<<...>>>() and extern __shared__. It needs Python 3. The software device's build includes this
# file, and so does the package of the flavour emulated; both set the global property GRAPHSINK_PRELUDE to simt.h.
#
# plain_cuda.py turns them into C++ first, and the headers (.cuh) that the target names among its sources too. They keep
# their places relative to the folder of the target, so that they find each other with #include "...". A generated file
# keeps its place relative to the folder's binary directory.

# Call it in the folder that defines the target, after all its sources were added.
function(graphsink_emulate_plain_cuda target)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(script ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/plain_cuda.py)
  get_property(prelude GLOBAL PROPERTY GRAPHSINK_PRELUDE)
  get_target_property(sources ${target} SOURCES)
  set(kept "")
  set(headers "")
  set(translated "")
  set(folders "")
  foreach(source IN LISTS sources)
    if(NOT source MATCHES "\\.cuh?$")
      list(APPEND kept ${source})
      continue()
    endif()
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
    set(base ${CMAKE_CURRENT_SOURCE_DIR})
    cmake_path(IS_PREFIX CMAKE_CURRENT_BINARY_DIR ${source} NORMALIZE is_generated)
    if(is_generated)
      set(base ${CMAKE_CURRENT_BINARY_DIR})
    endif()
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${base} OUTPUT_VARIABLE name)
    set(made ${CMAKE_CURRENT_BINARY_DIR}/plain_cuda/${target}/${name})
    add_custom_command(OUTPUT ${made} COMMAND ${Python3_EXECUTABLE} ${script} ${source} ${made}
                       DEPENDS ${source} ${script} COMMENT "C++ for the software device: ${name}" VERBATIM)
    if(source MATCHES "h$")
      list(APPEND headers ${made})
    else()
      list(APPEND translated ${made})
    endif()
    cmake_path(GET source PARENT_PATH folder)
    list(APPEND folders ${folder})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)  # of headers that are C++ already
    target_compile_options(${target} PRIVATE "SHELL:-iquote ${folder}")
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${kept};${translated};${headers}")
  # No contraction into fused multiply-adds: the same bits whatever the compiler makes of an expression.
  set_source_files_properties(${translated} PROPERTIES LANGUAGE CXX OBJECT_DEPENDS ${prelude}
                              COMPILE_OPTIONS "-xc++;-include;${prelude};-Wno-unknown-pragmas;-ffp-contract=off")
  target_link_libraries(${target} PRIVATE graphsink::cuda_emulator)
endfunction()
