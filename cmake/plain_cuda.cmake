# Defines graphsink_plain_cuda(target), which compiles the .cu files of a program that is written for nvcc, with
# kernel<<<...>>>() and extern __shared__, and that need not know graphsink. The library's build includes this file, and so
# does its package, after device_sources.cmake, which lists the global properties that both read.

# For the flavour cuda nvcc compiles the files untouched. For the flavour emulated they are translated to C++ and run on
# the software device, see graphsink_emulate_plain_cuda(). Call it in the folder that defines the target, after all its
# sources were added; for the flavour cuda, after enable_language(CUDA). In the flavour cpu nothing can run them.
function(graphsink_plain_cuda target)
  get_property(flavour GLOBAL PROPERTY GRAPHSINK_FLAVOUR)
  if(flavour STREQUAL "cuda")
    if(NOT CMAKE_CUDA_COMPILER_LOADED)
      message(FATAL_ERROR "graphsink_plain_cuda(${target}): this graphsink was built with CUDA: call enable_language(CUDA) "
                          "before")
    endif()
    set_target_properties(${target} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
    get_property(cudart GLOBAL PROPERTY GRAPHSINK_CUDART)
    target_link_libraries(${target} PRIVATE CUDA::${cudart})
  elseif(flavour STREQUAL "emulated")
    graphsink_emulate_plain_cuda(${target})
    target_compile_definitions(${target} PRIVATE GRAPHSINK_EMULATED)
  else()
    message(FATAL_ERROR "graphsink_plain_cuda(${target}): this graphsink was built for the CPU alone, where nothing can run "
                        "these .cu files: build it with -DGRAPHSINK_FLAVOUR=cuda, or =emulated where there is no GPU")
  endif()
endfunction()
