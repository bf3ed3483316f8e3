# How the three flavours are compiled: the compiler cache, warnings, sanitizers, and the treatment of .cu files.

# ccache is used if it is installed. Paths below the source folder are cached as relative paths, so that a second clone
# in another folder can use the results of the first (except for objects with line counts, which contain their folder).
# With CCACHE_DEPEND, ccache reads g++'s list of included files instead of running the preprocessor; nvcc has no such
# list. ccache demands these sloppiness options before it accepts precompiled headers. They are safe, because these
# headers belong to one set of flags and contain no time.
find_program(GRAPHSINK_CCACHE ccache)
if(GRAPHSINK_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=true ${GRAPHSINK_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_DEPEND=true CCACHE_SLOPPINESS=pch_defines,time_macros ${CMAKE_CUDA_COMPILER_LAUNCHER})
endif()

add_library(graphsink_options INTERFACE)
target_compile_features(graphsink_options INTERFACE cxx_std_20)
# Operations must not be contracted into fused multiply-adds, so that all compilers give the same bits.
target_compile_options(graphsink_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wno-sign-conversion;-ffp-contract=off>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${GRAPHSINK_WERROR}>>:-Werror>)
if(GRAPHSINK_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${GRAPHSINK_SANITIZE}> $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${GRAPHSINK_SANITIZE})
  # With sanitizers, g++ 12 wrongly reports uninitialised reads in the standard library.
  target_compile_options(graphsink_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  if(GRAPHSINK_SANITIZE MATCHES "undefined")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>)
  endif()
endif()

# NVTX consists of headers only. Without them, trace ranges compile to nothing.
find_path(GRAPHSINK_NVTX_INCLUDE nvtx3/nvToolsExt.h HINTS /usr/local/cuda/include)
if(GRAPHSINK_NVTX_INCLUDE)
  add_library(graphsink_nvtx INTERFACE)
  target_include_directories(graphsink_nvtx SYSTEM INTERFACE $<BUILD_INTERFACE:${GRAPHSINK_NVTX_INCLUDE}>)
  target_compile_definitions(graphsink_nvtx INTERFACE $<BUILD_INTERFACE:GRAPHSINK_NVTX>)
  target_link_libraries(graphsink_nvtx INTERFACE ${CMAKE_DL_LIBS})
endif()

if(GRAPHSINK_FLAVOUR STREQUAL "cuda")
  # Machine code for A100, for A10 and RTX 30, for L4, L40 and RTX 40, for H100 and H200, and the PTX of the last, which
  # newer devices compile when they load it. "native" or one number compiles in a third of the time.
  set(GRAPHSINK_ALL_ARCHITECTURES 80-real 86-real 89-real 90)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${GRAPHSINK_ALL_ARCHITECTURES})
  endif()
  if(NOT DEFINED CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  find_package(CUDAToolkit 13 REQUIRED)
elseif(GRAPHSINK_FLAVOUR STREQUAL "emulated")
  add_subdirectory(tests/cuda_emulator)
elseif(NOT GRAPHSINK_FLAVOUR STREQUAL "cpu")
  message(FATAL_ERROR "GRAPHSINK_FLAVOUR is \"${GRAPHSINK_FLAVOUR}\"; use cpu, cuda or emulated")
endif()

# Sets how graphsink_device_sources() compiles.
set_property(GLOBAL PROPERTY GRAPHSINK_FLAVOUR ${GRAPHSINK_FLAVOUR})
# A program and a shared library that it links must use one and the same CUDA runtime, which keeps the last error.
set(GRAPHSINK_CUDART cudart_static)
if(BUILD_SHARED_LIBS)
  set(GRAPHSINK_CUDART cudart)
endif()
set_property(GLOBAL PROPERTY GRAPHSINK_CUDART ${GRAPHSINK_CUDART})
if(GRAPHSINK_FLAVOUR STREQUAL "cpu")
  set_property(GLOBAL PROPERTY GRAPHSINK_PRELUDE ${PROJECT_SOURCE_DIR}/kernels/support/host_builtins.h)
endif()
include(${CMAKE_CURRENT_LIST_DIR}/device_sources.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/plain_cuda.cmake)

# Only what a public header declares can be seen outside of the shared library (GRAPHSINK_PUBLIC). Tests and samples use
# more than that, so a shared library that is built together with them shows everything. Such a library is one file for
# many programs, which is what a small archive for another machine needs (profiling/gpu_check.sh --pack).
if(BUILD_SHARED_LIBS AND (GRAPHSINK_BUILD_TESTS OR GRAPHSINK_BUILD_SAMPLES))
  message(STATUS "The shared library shows all of its symbols, because tests and samples are built with it")
else()
  set(CMAKE_CXX_VISIBILITY_PRESET hidden)
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
endif()

# Reading these headers takes half of the time in which a file of the library or a program is compiled, so each target
# with several files reads them once. Every file includes what it uses all the same: the presets with clang compile each
# file alone (CMAKE_DISABLE_PRECOMPILE_HEADERS). With CMAKE_UNITY_BUILD eight files are compiled as one, so that what is
# local to a file must not have the name of what is local to another file of its target.
set(GRAPHSINK_COMMON_HEADERS <algorithm> <array> <atomic> <bit> <chrono> <cmath> <cstdint> <cstring> <functional> <limits> <map>
    <memory> <mutex> <optional> <set> <span> <string> <vector> "${PROJECT_SOURCE_DIR}/include/graphsink/graphsink.h")
function(graphsink_precompile target)
  list(TRANSFORM ARGN REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:\\1>" OUTPUT_VARIABLE headers)
  target_precompile_headers(${target} PRIVATE ${headers})
endfunction()

# graphsink_layer(name "layers below" sources...) compiles one layer. Programs link the library graphsink, which holds the
# objects of all layers; in the archive of a layer, tests look up which CUDA functions that layer calls.
function(graphsink_layer name below)
  add_library(graphsink_${name} STATIC ${ARGN})
  set_property(GLOBAL APPEND PROPERTY GRAPHSINK_LAYERS graphsink_${name})
  set_target_properties(graphsink_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(graphsink_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include
    PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_compile_features(graphsink_${name} PUBLIC cxx_std_20)
  target_link_libraries(graphsink_${name} PRIVATE $<BUILD_INTERFACE:graphsink_options> PUBLIC Threads::Threads)
  if(TARGET graphsink_nvtx)
    target_link_libraries(graphsink_${name} PRIVATE $<BUILD_INTERFACE:graphsink_nvtx>)
  endif()
  # Only the layers whose coverage tests/run.sh checks: an object that counts lines contains the folder of its build, so
  # a compiler cache does not know it in another clone.
  if(GRAPHSINK_COVERAGE AND name MATCHES "^(device|exec|capture|kernels)$")
    target_compile_options(graphsink_${name} PRIVATE --coverage)
    target_link_options(graphsink_${name} PUBLIC --coverage)
  endif()
  foreach(layer IN LISTS below)
    target_link_libraries(graphsink_${name} PUBLIC graphsink_${layer})
  endforeach()
  list(LENGTH ARGN files)
  if(files GREATER 6 AND NOT name STREQUAL "kernels")  # kernels read less than these headers
    graphsink_precompile(graphsink_${name} ${GRAPHSINK_COMMON_HEADERS})
  endif()
  if(name MATCHES "^(device|kernels|capture)$")
    graphsink_device_sources(graphsink_${name} PRIVATE)
  endif()
endfunction()

# graphsink_library() adds the library itself, of all layers: static or shared, by BUILD_SHARED_LIBS.
function(graphsink_library)
  get_property(layers GLOBAL PROPERTY GRAPHSINK_LAYERS)
  list(TRANSFORM layers REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
  add_library(graphsink ${objects})
  add_library(graphsink::graphsink ALIAS graphsink)
  set_target_properties(graphsink PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION}
                                             SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_include_directories(graphsink PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(graphsink PUBLIC cxx_std_20)
  target_link_libraries(graphsink PUBLIC Threads::Threads PRIVATE OpenBLAS::OpenBLAS ZLIB::ZLIB spdlog::spdlog ${CMAKE_DL_LIBS})
  graphsink_device_sources(graphsink)
  if(GRAPHSINK_COVERAGE)
    target_link_options(graphsink PUBLIC --coverage)
  endif()
endfunction()

# graphsink_program(name sources...) adds a sample, tool or test; graphsink_objects(name sources...) the objects of some.
function(graphsink_program name)
  add_executable(${name} ${ARGN})
  graphsink_compile_for_programs(${name} ${ARGN})
endfunction()
function(graphsink_objects name)
  add_library(${name} OBJECT ${ARGN})
  graphsink_compile_for_programs(${name} ${ARGN})
endfunction()
function(graphsink_compile_for_programs name)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE graphsink graphsink_options)
  target_link_libraries(${name} PRIVATE graphsink_source_dir)
  # For a test, and for any program under a sanitizer, compiling takes longer than running. So these are compiled
  # without optimization, except for sources that set their own options. Kernels are excepted too, because their stacks
  # on the software device are small.
  if((GRAPHSINK_SANITIZE OR CMAKE_CURRENT_SOURCE_DIR STREQUAL "${PROJECT_SOURCE_DIR}/tests") AND NOT "${ARGN}" MATCHES "[.]cu")
    target_compile_options(${name} PRIVATE -O0)
  endif()
  # Undefined behaviour is checked in the library and the software device. Checks in the tests themselves would take a
  # quarter of their compile time.
  if(GRAPHSINK_SANITIZE MATCHES "undefined" AND CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/tests")
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
  endif()
  graphsink_device_sources(${name})
endfunction()

# The path of the sources, for code that reads LICENSE or golden files. It is compiled into one object only, because it
# differs between clones. Programs that run on another machine find these files through GRAPHSINK_SOURCE_DIR.
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/source_dir.cpp CONTENT
"#include \"samples/models/source_dir.h\"
#include <cstdlib>
namespace graphsink {
const char* source_dir() {
  const char* named = std::getenv(\"GRAPHSINK_SOURCE_DIR\");
  return named != nullptr && *named != 0 ? named : \"${PROJECT_SOURCE_DIR}\";
}
}
")
add_library(graphsink_source_dir STATIC ${CMAKE_BINARY_DIR}/source_dir.cpp)
target_include_directories(graphsink_source_dir PUBLIC ${PROJECT_SOURCE_DIR})
