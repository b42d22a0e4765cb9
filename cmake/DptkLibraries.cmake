# Finds the libraries that dptk's targets depend on. dptk's own build, find_package(dptk) and the Conan package all use this
# file. A target that is not in these lists needs no library.

set(DPTK_CMAKE_DIR ${CMAKE_CURRENT_LIST_DIR})

# The arguments of find_package for each target's library.
set(DPTK_FIND_mpi MPI COMPONENTS CXX)
set(DPTK_FIND_gloo Gloo CONFIG)
set(DPTK_FIND_readers ZLIB)
set(DPTK_FIND_images JPEG)
set(DPTK_FIND_weights nlohmann_json 3.10 CONFIG)
set(DPTK_FIND_onednn oneDNN 2.6 MODULE)
set(DPTK_FIND_cuda CUDAToolkit 12.4)
set(DPTK_FIND_nccl NCCL 2.14 MODULE)
set(DPTK_FIND_nn_cuda cuDNN 9 MODULE)

# The imported target that find_package defines.
set(DPTK_LIBRARY_mpi MPI::MPI_CXX)
set(DPTK_LIBRARY_gloo gloo)
set(DPTK_LIBRARY_readers ZLIB::ZLIB)
set(DPTK_LIBRARY_images JPEG::JPEG PNG::PNG)
set(DPTK_LIBRARY_weights nlohmann_json::nlohmann_json)
set(DPTK_LIBRARY_onednn oneDNN::oneDNN)
set(DPTK_LIBRARY_cuda CUDA::cudart)
set(DPTK_LIBRARY_nccl NCCL::nccl)
set(DPTK_LIBRARY_nn_cuda cuDNN::cudnn)

# The description of the library in error messages.
set(DPTK_NEEDS_mpi "MPI (Open MPI or MPICH)")
set(DPTK_NEEDS_gloo "Gloo")
set(DPTK_NEEDS_readers "zlib")
set(DPTK_NEEDS_images "libjpeg-turbo and libpng")
set(DPTK_NEEDS_weights "nlohmann-json 3.10 or newer")
set(DPTK_NEEDS_onednn "oneDNN 2.6 or newer")
set(DPTK_NEEDS_cuda "the CUDA Toolkit 12.4 or newer")
set(DPTK_NEEDS_nccl "NCCL 2.14 or newer, with the CUDA Toolkit")
set(DPTK_NEEDS_nn_cuda "cuDNN 9 or newer, with the CUDA Toolkit, its nvcc and cuBLASLt")

# Other components that a component depends on, or uses if they are found.
set(DPTK_COMES_WITH_nn onednn)
set(DPTK_COMES_WITH_nccl cuda)
set(DPTK_COMES_WITH_nn_cuda cuda nn onednn)

# dptk_find_library(<name>): searches for the library of dptk::<name>, and sets DPTK_FOUND_<name>. It is a macro, so that the
# caller sees the variables that find_package sets.
macro(dptk_find_library name)
    set(DPTK_FOUND_${name} TRUE)
    if("${name}" MATCHES "^(nccl|nn_cuda)$") # NCCL and cuDNN are searched for in the toolkit's folders
        dptk_find_library(cuda)
        set(DPTK_FOUND_${name} ${DPTK_FOUND_cuda})
    endif()
    if("${name}" STREQUAL "images")
        find_package(PNG QUIET)
    endif()
    if("${name}" STREQUAL "nn_cuda" AND NOT (TARGET CUDA::cublasLt AND CUDAToolkit_NVCC_EXECUTABLE))
        set(DPTK_FOUND_nn_cuda FALSE)
    endif()
    if(DPTK_FOUND_${name} AND DPTK_FIND_${name})
        list(APPEND CMAKE_MODULE_PATH ${DPTK_CMAKE_DIR})
        find_package(${DPTK_FIND_${name}} QUIET)
        list(POP_BACK CMAKE_MODULE_PATH)
        foreach(dptk_library IN LISTS DPTK_LIBRARY_${name})
            if(NOT TARGET ${dptk_library})
                set(DPTK_FOUND_${name} FALSE)
            endif()
        endforeach()
    endif()
endmacro()
