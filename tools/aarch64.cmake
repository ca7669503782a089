# Toolchain file: builds for 64-bit ARM on another machine; CTest runs the tests through qemu. How: README.md, "Other processors".
# -DCMAKE_SYSROOT=DIR is a Debian or Ubuntu tree of that architecture with the dependencies in it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L ${CMAKE_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
# find_package(HDF5) asks a compiler wrapper where the library lies; that of the sysroot would answer for its own machine.
set(HDF5_C_COMPILER_EXECUTABLE ${CMAKE_BINARY_DIR}/h5cc)
file(WRITE ${HDF5_C_COMPILER_EXECUTABLE} "#!/bin/sh\necho cc -I${CMAKE_SYSROOT}/usr/include/hdf5/serial -L${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/hdf5/serial -lhdf5\n")
file(CHMOD ${HDF5_C_COMPILER_EXECUTABLE} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
