# graphsink_device_sources(target): how the .cu files of a target are compiled. The build of the library includes this
# file, and so does its package, for projects with ops of their own.
#
# Two global properties say how, so that the function may be called from any folder:
#   GRAPHSINK_FLAVOUR   cpu, cuda or emulated, as the library was built
#   GRAPHSINK_PRELUDE   the header that stands in front of a .cu file where g++ compiles it: not for the flavour cuda

# CMake 3.25 has not heard that nvcc 12 and newer know C++20. A version that has sets this again in enable_language().
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()

# Compiles the .cu files of `target` as the library's flavour does. Call it in the folder that defines the target, after
# all its sources were added, and for the flavour cuda after enable_language(CUDA).
function(graphsink_device_sources target)
  get_property(flavour GLOBAL PROPERTY GRAPHSINK_FLAVOUR)
  get_property(prelude GLOBAL PROPERTY GRAPHSINK_PRELUDE)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cu$")
  if(flavour STREQUAL "cuda")
    if(sources AND NOT CMAKE_CUDA_COMPILER_LOADED)
      message(FATAL_ERROR "graphsink_device_sources(${target}): this graphsink was built with CUDA and ${target} has .cu "
                          "files: call enable_language(CUDA) before")
    endif()
    set_target_properties(${target} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra,-ffp-contract=off>
      $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${GRAPHSINK_WERROR}>>:-Werror=all-warnings>)
    target_link_libraries(${target} PUBLIC CUDA::cudart_static CUDA::cublasLt)
    target_compile_definitions(${target} PUBLIC $<BUILD_INTERFACE:GRAPHSINK_CUDA>)
    return()
  endif()
  if(sources)
    # No contraction into fused multiply-adds: the same bits whatever the compiler makes of an expression.
    set_source_files_properties(${sources} PROPERTIES LANGUAGE CXX OBJECT_DEPENDS ${prelude}
                                                      COMPILE_OPTIONS "-xc++;-include;${prelude};-ffp-contract=off")
  endif()
  if(flavour STREQUAL "emulated")
    target_link_libraries(${target} PUBLIC graphsink::cuda_emulator)
    target_compile_definitions(${target} PUBLIC GRAPHSINK_CUDA GRAPHSINK_EMULATED)
  endif()
endfunction()
