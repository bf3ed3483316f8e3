# graphsink_plain_cuda(target): compiles the .cu files of a program that is written as most CUDA programs are, with
# kernel<<<...>>>() and extern __shared__, and that need not know graphsink.
#
# For the flavour cuda nvcc compiles the files untouched. For the flavour emulated tests/cuda_emulator/plain_cuda.py turns
# them into C++ for the software device first, and the headers (.cuh) that the target names among its sources too. They
# keep their places relative to each other, so that they find each other with #include "...".

find_package(Python3 REQUIRED COMPONENTS Interpreter)
set_property(GLOBAL PROPERTY GRAPHSINK_PLAIN_CUDA_SCRIPT
             ${CMAKE_CURRENT_LIST_DIR}/../tests/cuda_emulator/plain_cuda.py)

# Call it in the folder that defines the target, after all its sources were added.
function(graphsink_plain_cuda target)
  get_property(flavour GLOBAL PROPERTY GRAPHSINK_FLAVOUR)
  get_target_property(sources ${target} SOURCES)
  if(flavour STREQUAL "cuda")
    set_target_properties(${target} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
    target_link_libraries(${target} PRIVATE CUDA::cudart_static CUDA::cublas)
    return()
  endif()
  if(NOT flavour STREQUAL "emulated")
    message(FATAL_ERROR "graphsink_plain_cuda(${target}): nothing can run it in the flavour ${flavour}: use cuda or emulated")
  endif()
  get_property(script GLOBAL PROPERTY GRAPHSINK_PLAIN_CUDA_SCRIPT)
  get_property(prelude GLOBAL PROPERTY GRAPHSINK_PRELUDE)
  set(kept "")
  set(headers "")
  set(translated "")
  foreach(source IN LISTS sources)
    if(NOT source MATCHES "\\.cuh?$")
      list(APPEND kept ${source})
      continue()
    endif()
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE name)
    set(made ${CMAKE_CURRENT_BINARY_DIR}/plain_cuda/${name})
    # One command for each file, however many targets share it.
    get_property(is_made GLOBAL PROPERTY GRAPHSINK_PLAIN_CUDA_${made})
    if(NOT is_made)
      set_property(GLOBAL PROPERTY GRAPHSINK_PLAIN_CUDA_${made} TRUE)
      add_custom_command(OUTPUT ${made} COMMAND Python3::Interpreter ${script} ${source} ${made}
                         DEPENDS ${source} ${script} COMMENT "C++ for the software device: ${name}" VERBATIM)
    endif()
    if(source MATCHES "h$")
      list(APPEND headers ${made})
    else()
      list(APPEND translated ${made})
    endif()
    cmake_path(GET source PARENT_PATH folder)
    target_compile_options(${target} PRIVATE "SHELL:-iquote ${folder}")  # headers that are C++ already
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${kept};${translated};${headers}")
  # No contraction into fused multiply-adds: the same bits whatever the compiler makes of an expression.
  set_source_files_properties(${translated} PROPERTIES LANGUAGE CXX OBJECT_DEPENDS "${prelude};${headers}"
                              COMPILE_OPTIONS "-xc++;-include;${prelude};-ffp-contract=off;-Wno-unknown-pragmas")
  target_compile_options(${target} PRIVATE -Wall -Wextra $<$<BOOL:${GRAPHSINK_WERROR}>:-Werror>)
  target_link_libraries(${target} PRIVATE graphsink::cuda_emulator)
endfunction()
