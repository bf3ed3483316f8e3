# Defines graphsink_device_sources(target), which sets how the .cu files of a target are compiled. The library's build
# includes this file. Its package includes it too, for projects with custom ops. Files with kernel<<<...>>>() need
# graphsink_plain_cuda(), see plain_cuda.cmake.
#
# Global properties control this, so that the function may be called in any folder:
#   GRAPHSINK_FLAVOUR   cpu, cuda or emulated, as the library was built
#   GRAPHSINK_CUDART    cudart or cudart_static: the CUDA runtime that the library is linked with; for the flavour cuda
#   GRAPHSINK_PRELUDE   the header included before a .cu file when g++ compiles it; not set for the flavour cuda

# CMake 3.25 does not know that nvcc 12 and newer support C++20. A newer CMake sets this variable in enable_language().
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()

# Compiles the .cu files of `target` for the library's flavour. Call it in the folder that defines the target, after all
# its sources were added. For the flavour cuda, call it after enable_language(CUDA). What links the target may compile
# device code itself, unless PRIVATE follows.
function(graphsink_device_sources target)
  set(visibility PUBLIC)
  if(ARGN)
    set(visibility ${ARGN})
  endif()
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
    get_property(cudart GLOBAL PROPERTY GRAPHSINK_CUDART)
    target_link_libraries(${target} ${visibility} CUDA::${cudart} CUDA::cublasLt)
    target_compile_definitions(${target} ${visibility} $<BUILD_INTERFACE:GRAPHSINK_CUDA>)
    return()
  endif()
  if(sources)
    # Operations must not be contracted into fused multiply-adds, so that all compilers give the same bits. Nobody reads
    # errno or the flags of floating-point exceptions, for which compilers would leave loops scalar; results are the same.
    set_source_files_properties(${sources} PROPERTIES LANGUAGE CXX OBJECT_DEPENDS ${prelude}
                                                      COMPILE_OPTIONS "-xc++;-include;${prelude};-ffp-contract=off;-fno-math-errno;-fno-trapping-math")
  endif()
  if(flavour STREQUAL "emulated")
    target_link_libraries(${target} ${visibility} graphsink::cuda_emulator)
    target_compile_definitions(${target} ${visibility} GRAPHSINK_CUDA GRAPHSINK_EMULATED)
  endif()
endfunction()
