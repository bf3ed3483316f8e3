# graphsink_plain_cuda(target): compiles the .cu files of a program that is written for nvcc and need not know
# graphsink. For the flavour cuda nvcc compiles them untouched, for the flavour emulated see
# tests/cuda_emulator/plain_cuda.cmake. Call it in the folder that defines the target, after all its sources were added.
function(graphsink_plain_cuda target)
  if(GRAPHSINK_FLAVOUR STREQUAL "cuda")
    set_target_properties(${target} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>
                           $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${GRAPHSINK_WERROR}>>:-Werror=all-warnings>)
    get_property(cudart GLOBAL PROPERTY GRAPHSINK_CUDART)
    target_link_libraries(${target} PRIVATE CUDA::${cudart} CUDA::cublas)
  elseif(GRAPHSINK_FLAVOUR STREQUAL "emulated")
    target_compile_options(${target} PRIVATE -Wall -Wextra $<$<BOOL:${GRAPHSINK_WERROR}>:-Werror>)
    graphsink_emulate_plain_cuda(${target})
  else()
    message(FATAL_ERROR "graphsink_plain_cuda(${target}): nothing can run it in the flavour ${GRAPHSINK_FLAVOUR}")
  endif()
endfunction()
