# The header-only targets:
#   dptk::dptk     groups, sampler, DistributedDataParallel: needs only the standard library
#   dptk::mpi      + MPI
#   dptk::gloo     + Gloo
#   dptk::cuda     + device memory, staged through the host (CUDA Toolkit; with nvcc also dptk's kernels)
#   dptk::nccl     + NCCL
#   dptk::readers  + readers of dataset files (zlib)
#   dptk::images   + decoders of JPEG and PNG, folders of images (libjpeg-turbo, libpng)
#   dptk::weights  + weights in safetensors files (nlohmann-json)
#   dptk::nn       + networks, pruning and the trainer; uses oneDNN if it is found, else plain loops
#   dptk::nn_cuda  + the trainer on a GPU (nvcc, cuDNN and cuBLASLt)
#   dptk::adapters + containers of other libraries, which the program links itself
# A target whose library is not found is not defined, but its headers are installed anyway. DptkCompiled defines the
# corresponding targets of the compiled mode: dptk::compiled, dptk::compiled_mpi, ...

include(DptkLibraries)

find_package(Threads REQUIRED)
set(DPTK_INCLUDE_DIR ${CMAKE_CURRENT_LIST_DIR}/../include)
cmake_path(NORMAL_PATH DPTK_INCLUDE_DIR)
set(DPTK_SOURCE_DIR ${CMAKE_CURRENT_LIST_DIR}/../src)
cmake_path(NORMAL_PATH DPTK_SOURCE_DIR)
set(DPTK_TARGETS)

# dptk_add_headers(<name> <glob>...): defines the target dptk_<name> with the matching headers, which is exported as
# dptk::<name>, and the alias dptk::<name> if its library is found.
macro(dptk_add_headers name)
    dptk_find_library(${name})
    dptk_add_header_target(${name} ${ARGN})
    list(APPEND DPTK_TARGETS ${name})
    if(DPTK_FOUND_${name})
        add_library(dptk::${name} ALIAS dptk_${name})
    elseif(PROJECT_IS_TOP_LEVEL)
        message(STATUS "dptk::${name} is left out: ${DPTK_NEEDS_${name}} is not found")
    endif()
endmacro()

function(dptk_add_header_target name)
    list(TRANSFORM ARGN PREPEND ${DPTK_INCLUDE_DIR}/dptk/)
    file(GLOB headers CONFIGURE_DEPENDS ${ARGN})
    if(name STREQUAL "dptk") # the headers that need a library are in the same folders
        list(FILTER headers EXCLUDE REGEX "/comm/(mpi|gloo|nccl|staged)\\.[hi]pp$|/core/cuda\\.hpp$")
    endif()
    set(target dptk_${name})
    add_library(${target} INTERFACE)
    set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
    target_compile_features(${target} INTERFACE cxx_std_20)
    target_sources(${target} INTERFACE
        FILE_SET HEADERS BASE_DIRS ${DPTK_INCLUDE_DIR} FILES ${headers})
    target_link_libraries(${target} INTERFACE ${DPTK_LIBRARY_${name}})
    if(NOT name STREQUAL "dptk")
        target_link_libraries(${target} INTERFACE dptk_dptk)
    endif()
endfunction()

dptk_add_headers(dptk ddp.hpp core/*.[hi]pp core/detail/*.[hi]pp control/*/*.[hi]pp control/*/detail/*.[hi]pp comm/*.[hi]pp
    comm/algorithms/*.[hi]pp comm/detail/*.[hi]pp comm/engine/*.[hi]pp comm/shm/*.[hi]pp comm/tcp/*.[hi]pp
    comm/thread/*.[hi]pp data/*.[hi]pp data/detail/*.[hi]pp data/transforms/*.[hi]pp ddp/*.[hi]pp ddp/detail/*.[hi]pp
    ddp/hooks/*.[hi]pp optim/*.[hi]pp)
target_link_libraries(dptk_dptk INTERFACE Threads::Threads ${CMAKE_DL_LIBS})

dptk_add_headers(mpi comm/mpi.[hi]pp comm/mpi/*.[hi]pp)
target_compile_definitions(dptk_mpi INTERFACE DPTK_WITH_MPI)

dptk_add_headers(gloo comm/gloo.[hi]pp comm/gloo/*.[hi]pp)
target_compile_definitions(dptk_gloo INTERFACE DPTK_WITH_GLOO)

dptk_add_headers(cuda core/cuda.hpp core/cuda/*.[hi]pp core/cuda/detail/*.[hi]pp comm/staged.[hi]pp comm/staged/*.[hi]pp
    data/cuda/*.[hi]pp)
target_compile_definitions(dptk_cuda INTERFACE DPTK_WITH_CUDA)
if(TARGET dptk::cuda AND CUDAToolkit_NVCC_EXECUTABLE)
    include(DptkKernels)
    dptk_add_kernels(dptk_kernels ${DPTK_INCLUDE_DIR})
    target_compile_definitions(dptk_cuda INTERFACE $<BUILD_INTERFACE:DPTK_WITH_KERNELS>)
    target_link_libraries(dptk_cuda INTERFACE $<BUILD_INTERFACE:dptk_kernels>)
elseif(TARGET dptk::cuda AND PROJECT_IS_TOP_LEVEL)
    message(STATUS "dptk's kernels are left out: nvcc is not found")
endif()

dptk_add_headers(nccl comm/nccl.[hi]pp comm/nccl/*.[hi]pp)
target_compile_definitions(dptk_nccl INTERFACE DPTK_WITH_NCCL)
target_link_libraries(dptk_nccl INTERFACE dptk_cuda)

dptk_add_headers(readers data/readers/*.[hi]pp data/readers/detail/*.[hi]pp)

dptk_add_headers(images data/images/*.[hi]pp data/images/detail/*.[hi]pp)

dptk_add_headers(weights weights/*.[hi]pp weights/detail/*.[hi]pp train/checkpoint/*.[hi]pp)

dptk_add_headers(onednn nn/cpu/*.[hi]pp)
target_compile_definitions(dptk_onednn INTERFACE DPTK_WITH_ONEDNN)

dptk_add_headers(nn train.hpp nn/*.[hi]pp nn/detail/*.[hi]pp nn/reference/*.[hi]pp prune/*.[hi]pp train/*.[hi]pp
    train/callbacks/*.[hi]pp train/detail/*.[hi]pp)
if(TARGET dptk::onednn)
    target_link_libraries(dptk_nn INTERFACE $<BUILD_INTERFACE:dptk_onednn>)
endif()

dptk_add_headers(nn_cuda nn/cuda/*.[hi]pp optim/cuda/*.[hi]pp optim/cuda/detail/*.[hi]pp train/detail/cuda/*.[hi]pp)
target_compile_definitions(dptk_nn_cuda INTERFACE DPTK_WITH_CUDNN)
target_link_libraries(dptk_nn_cuda INTERFACE dptk_nn dptk_cuda CUDA::cublasLt)
if(TARGET dptk::nn_cuda)
    dptk_add_kernels(dptk_nn_kernels ${DPTK_INCLUDE_DIR})
    target_link_libraries(dptk_nn_cuda INTERFACE $<BUILD_INTERFACE:dptk_nn_kernels>)
endif()

dptk_add_headers(adapters adapters/*.[hi]pp)

include(DptkCompiled)
dptk_add_compiled(${DPTK_SOURCE_DIR})
