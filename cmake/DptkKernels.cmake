# The CUDA kernels of dptk as a static library, built once by a project that uses dptk. nvcc is called by a custom command,
# so that the project need not enable the CUDA language.

set(DPTK_NVCC "${CUDAToolkit_NVCC_EXECUTABLE}")
set(DPTK_CUDA_FLAGS -std=c++20 -O3 -Xcompiler -fPIC -ccbin)
if(CMAKE_CUDA_HOST_COMPILER)
    list(APPEND DPTK_CUDA_FLAGS ${CMAKE_CUDA_HOST_COMPILER})
else()
    list(APPEND DPTK_CUDA_FLAGS ${CMAKE_CXX_COMPILER})
endif()
if(CMAKE_CUDA_ARCHITECTURES MATCHES "^(native|all|all-major)$")
    list(APPEND DPTK_CUDA_FLAGS -arch=${CMAKE_CUDA_ARCHITECTURES})
else()
    set(architectures 75-real 80-real 90)
    if(CMAKE_CUDA_ARCHITECTURES)
        set(architectures ${CMAKE_CUDA_ARCHITECTURES})
    endif()
    foreach(architecture ${architectures})
        string(REGEX REPLACE "-.*" "" number ${architecture})
        set(code "[sm_${number},compute_${number}]")
        if(architecture MATCHES "-real$")
            set(code sm_${number})
        elseif(architecture MATCHES "-virtual$")
            set(code compute_${number})
        endif()
        list(APPEND DPTK_CUDA_FLAGS -gencode arch=compute_${number},code=${code})
    endforeach()
endif()

set(DPTK_SOURCES_dptk_kernels core/cuda/detail/kernels.cu core/cuda/detail/gradient_math.cu)
set(DPTK_SOURCES_dptk_nn_kernels nn/cuda/kernels.cu optim/cuda/detail/optimizer_kernels.cu)

# dptk_add_kernels(<target> <include folder>): defines the library <target>, dptk_kernels or dptk_nn_kernels.
function(dptk_add_kernels target include_dir)
    if(TARGET ${target})
        return()
    endif()
    set(objects)
    foreach(source ${DPTK_SOURCES_${target}})
        string(MAKE_C_IDENTIFIER ${source} name)
        set(object ${CMAKE_CURRENT_BINARY_DIR}/${target}_${name}.o)
        add_custom_command(OUTPUT ${object}
            COMMAND ${DPTK_NVCC} ${DPTK_CUDA_FLAGS} -I${include_dir} -MD -MF ${object}.d
                -c ${include_dir}/dptk/${source} -o ${object}
            DEPENDS ${include_dir}/dptk/${source} DEPFILE ${object}.d COMMENT "Compiling ${source}" VERBATIM)
        list(APPEND objects ${object})
    endforeach()
    add_library(${target} STATIC EXCLUDE_FROM_ALL ${objects})
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
    target_link_libraries(${target} INTERFACE CUDA::cudart)
endfunction()

# dptk_link_kernels(<include folder>): links the kernels to dptk::cuda of an installed dptk, and to dptk::nn_cuda if it
# exists.
function(dptk_link_kernels include_dir)
    dptk_add_kernels(dptk_kernels ${include_dir})
    set_property(TARGET dptk::cuda APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS DPTK_WITH_KERNELS)
    target_link_libraries(dptk::cuda INTERFACE dptk_kernels)
    if(TARGET dptk::nn_cuda)
        dptk_add_kernels(dptk_nn_kernels ${include_dir})
        target_link_libraries(dptk::nn_cuda INTERFACE dptk_nn_kernels)
    endif()
endfunction()
