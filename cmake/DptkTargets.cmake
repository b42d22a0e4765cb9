# The header-only targets:
#   dptk::dptk     groups, sampler, DistributedDataParallel: the standard library alone
#   dptk::mpi      + MPI
#   dptk::gloo     + Gloo
#   dptk::cuda     + device memory, sent through the host (CUDA Toolkit; with nvcc also kernels of dptk's own)
#   dptk::nccl     + NCCL
#   dptk::readers  + files of real formats (zlib)
#   dptk::nn       + the trainer; through oneDNN where it is found, else through plain loops
#   dptk::nn_cuda  + the trainer on a GPU (nvcc, cuDNN and cuBLASLt)
# A target whose library is missing is not defined here, but its headers are installed all the same.

find_package(Threads REQUIRED)
find_package(MPI QUIET COMPONENTS CXX)
find_package(Gloo QUIET CONFIG)
find_package(ZLIB QUIET)
find_package(oneDNN 2.6 QUIET MODULE)
find_package(CUDAToolkit 12.4 QUIET)
if(TARGET CUDA::cudart)
    find_package(NCCL 2.14 QUIET MODULE)
    find_package(cuDNN 9 QUIET MODULE)
endif()

set(DPTK_INCLUDE_DIR ${CMAKE_CURRENT_LIST_DIR}/../include)
cmake_path(NORMAL_PATH DPTK_INCLUDE_DIR)

# dptk_add_headers(<name> <glob>...): target dptk_<name> with the headers that match, exported as dptk::<name>.
function(dptk_add_headers name)
    list(TRANSFORM ARGN PREPEND ${DPTK_INCLUDE_DIR}/dptk/)
    file(GLOB headers CONFIGURE_DEPENDS ${ARGN})
    if(name STREQUAL "dptk") # all transports' headers lie in one folder
        list(FILTER headers EXCLUDE REGEX "/comm/(mpi|gloo|nccl|staged)[^/]*$")
    endif()
    set(target dptk_${name})
    add_library(${target} INTERFACE)
    set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
    target_compile_features(${target} INTERFACE cxx_std_20)
    target_sources(${target} INTERFACE
        FILE_SET HEADERS BASE_DIRS ${DPTK_INCLUDE_DIR} FILES ${headers})
    if(NOT name STREQUAL "dptk")
        target_link_libraries(${target} INTERFACE dptk_dptk)
    endif()
endfunction()

dptk_add_headers(dptk ddp.hpp core/*.hpp control/*.hpp comm/*.hpp comm/algorithms/*.hpp data/*.hpp ddp/*.hpp
    ddp/hooks/*.hpp optim/*.hpp)
target_link_libraries(dptk_dptk INTERFACE Threads::Threads)
add_library(dptk::dptk ALIAS dptk_dptk)

dptk_add_headers(mpi comm/mpi*.hpp)
target_compile_definitions(dptk_mpi INTERFACE DPTK_WITH_MPI)
target_link_libraries(dptk_mpi INTERFACE MPI::MPI_CXX ${CMAKE_DL_LIBS})

dptk_add_headers(gloo comm/gloo*.hpp)
target_compile_definitions(dptk_gloo INTERFACE DPTK_WITH_GLOO)
target_link_libraries(dptk_gloo INTERFACE gloo)

dptk_add_headers(cuda core/cuda.hpp core/cuda/*.hpp comm/staged*.hpp)
target_compile_definitions(dptk_cuda INTERFACE DPTK_WITH_CUDA)
target_link_libraries(dptk_cuda INTERFACE CUDA::cudart)

if(TARGET CUDA::cudart AND CUDAToolkit_NVCC_EXECUTABLE)
    include(DptkKernels)
    dptk_add_kernels(dptk_kernels ${DPTK_INCLUDE_DIR} core/cuda/kernels.cu core/cuda/gradient_math.cu)
    target_compile_definitions(dptk_cuda INTERFACE $<BUILD_INTERFACE:DPTK_WITH_KERNELS>)
    target_link_libraries(dptk_cuda INTERFACE $<BUILD_INTERFACE:dptk_kernels>)
elseif(TARGET CUDA::cudart AND PROJECT_IS_TOP_LEVEL)
    message(STATUS "nvcc is not there: dptk's kernels, and the trainer on a GPU, are left out")
endif()

dptk_add_headers(nccl comm/nccl*.hpp)
target_compile_definitions(dptk_nccl INTERFACE DPTK_WITH_NCCL)
target_link_libraries(dptk_nccl INTERFACE dptk_cuda NCCL::nccl)

dptk_add_headers(readers data/readers/*.hpp)
target_link_libraries(dptk_readers INTERFACE ZLIB::ZLIB)

dptk_add_headers(nn train.hpp nn/*.hpp nn/reference/*.hpp train/*.hpp)
add_library(dptk::nn ALIAS dptk_nn)

dptk_add_headers(onednn nn/cpu/*.hpp)
target_compile_definitions(dptk_onednn INTERFACE DPTK_WITH_ONEDNN)
target_link_libraries(dptk_onednn INTERFACE oneDNN::oneDNN ${CMAKE_DL_LIBS})

dptk_add_headers(nn_cuda nn/cuda/*.hpp train/cuda/*.hpp)
target_compile_definitions(dptk_nn_cuda INTERFACE DPTK_WITH_CUDNN)
target_link_libraries(dptk_nn_cuda INTERFACE dptk_nn dptk_cuda cuDNN::cudnn CUDA::cublasLt)

if(TARGET MPI::MPI_CXX)
    add_library(dptk::mpi ALIAS dptk_mpi)
endif()
if(TARGET gloo)
    add_library(dptk::gloo ALIAS dptk_gloo)
endif()
if(TARGET CUDA::cudart)
    add_library(dptk::cuda ALIAS dptk_cuda)
elseif(PROJECT_IS_TOP_LEVEL)
    message(STATUS "The CUDA Toolkit (12.4 or newer) is not there: CUDA and NCCL are left out")
endif()
if(TARGET NCCL::nccl)
    add_library(dptk::nccl ALIAS dptk_nccl)
elseif(TARGET CUDA::cudart AND PROJECT_IS_TOP_LEVEL)
    message(STATUS "NCCL (2.14 or newer) is not there: it is left out")
endif()
if(TARGET cuDNN::cudnn AND TARGET CUDA::cublasLt AND TARGET dptk_kernels)
    add_library(dptk::nn_cuda ALIAS dptk_nn_cuda)
    dptk_add_kernels(dptk_nn_kernels ${DPTK_INCLUDE_DIR} nn/cuda/kernels.cu)
    target_link_libraries(dptk_nn_cuda INTERFACE $<BUILD_INTERFACE:dptk_nn_kernels>)
elseif(TARGET dptk_kernels AND PROJECT_IS_TOP_LEVEL)
    message(STATUS "cuDNN (9 or newer) is not there: the trainer on a GPU is left out")
endif()
if(TARGET ZLIB::ZLIB)
    add_library(dptk::readers ALIAS dptk_readers)
endif()
if(TARGET oneDNN::oneDNN)
    add_library(dptk::onednn ALIAS dptk_onednn)
    target_link_libraries(dptk_nn INTERFACE $<BUILD_INTERFACE:dptk_onednn>)
endif()

# `all_verify_interface_header_sets` compiles each header alone.
if(PROJECT_IS_TOP_LEVEL)
    set_target_properties(dptk_dptk dptk_nn PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
    foreach(name mpi gloo cuda nccl readers onednn nn_cuda)
        if(TARGET dptk::${name})
            set_target_properties(dptk_${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
        endif()
    endforeach()
endif()
