# How .cu files are compiled: in this project, and in others that find the package, which includes this file. Expects
#   GRAPHSINK_FLAVOUR         of the library: cpu, cuda or emulated
#   GRAPHSINK_DEVICE_PRELUDE  but for cuda: the header that stands for the CUDA compiler's built-ins
if(GRAPHSINK_FLAVOUR STREQUAL "cuda" AND NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  # CMake 3.25 does not know yet that nvcc 12 and newer compile C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()

# graphsink_device_sources(target): compiles the .cu files of `target` as the library's own are compiled: by nvcc in the
# flavour cuda (enable the language CUDA before), else as C++. Call it in the folder that defines the target.
function(graphsink_device_sources target)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cu$")
  if(GRAPHSINK_FLAVOUR STREQUAL "cuda")
    # No contraction into fused multiply-adds: the same bits whatever the compiler makes of an expression.
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra,-ffp-contract=off>
      $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${GRAPHSINK_WERROR}>>:-Werror=all-warnings>)
    target_link_libraries(${target} PUBLIC CUDA::cudart_static CUDA::cublasLt)
    target_compile_definitions(${target} PUBLIC $<BUILD_INTERFACE:GRAPHSINK_CUDA>)
    return()
  endif()
  if(sources)
    set_source_files_properties(${sources} PROPERTIES LANGUAGE CXX OBJECT_DEPENDS ${GRAPHSINK_DEVICE_PRELUDE}
                                                      COMPILE_OPTIONS "-xc++;-include;${GRAPHSINK_DEVICE_PRELUDE}")
  endif()
  if(GRAPHSINK_FLAVOUR STREQUAL "emulated")
    if(TARGET graphsink::cuda_emulator)  # installed
      target_link_libraries(${target} PUBLIC graphsink::cuda_emulator)
    else()
      target_link_libraries(${target} PUBLIC graphsink_cuda_emulator)
    endif()
    target_compile_definitions(${target} PUBLIC GRAPHSINK_CUDA GRAPHSINK_EMULATED)
  endif()
endfunction()
