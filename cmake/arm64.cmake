# A toolchain file: compiles for 64-bit ARM Linux on another machine, with Debian's g++-aarch64-linux-gnu, and runs what
# was built with qemu-user. tests/arm64/root.sh makes the folder of the libraries.
set(GRAPHSINK_ARM64_ROOT ${CMAKE_CURRENT_LIST_DIR}/../build/arm64-root)
cmake_path(NORMAL_PATH GRAPHSINK_ARM64_ROOT)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_SYSROOT ${GRAPHSINK_ARM64_ROOT})
set(CMAKE_FIND_ROOT_PATH ${GRAPHSINK_ARM64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# The CPU device reserves tens of GiB of addresses, and less where it cannot have them. With 3 GiB for all addresses
# qemu-user refuses them at once; else it would keep an entry of a table for each page of them.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -R 3G -L ${GRAPHSINK_ARM64_ROOT})
