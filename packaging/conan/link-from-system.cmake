# Links dptk::<name>, which Conan's generated files have defined, with the system library that it needs. The package contains
# this file as <name>.cmake.

cmake_path(GET CMAKE_CURRENT_LIST_FILE STEM dptk_name)
include(${CMAKE_CURRENT_LIST_DIR}/DptkLibraries.cmake)
dptk_find_library(${dptk_name})
if(NOT DPTK_FOUND_${dptk_name})
    message(STATUS "dptk::${dptk_name} cannot be linked: ${DPTK_NEEDS_${dptk_name}} is not found")
endif()
target_link_libraries(dptk::${dptk_name} INTERFACE ${DPTK_LIBRARY_${dptk_name}})

if(DPTK_FOUND_${dptk_name} AND dptk_name STREQUAL "cuda" AND CUDAToolkit_NVCC_EXECUTABLE)
    include(${CMAKE_CURRENT_LIST_DIR}/DptkKernels.cmake)
    dptk_link_kernels(${CMAKE_CURRENT_LIST_DIR}/../include)
endif()
if(dptk_name STREQUAL "nn_cuda")
    target_link_libraries(dptk::nn_cuda INTERFACE CUDA::cublasLt)
endif()
