# The kernels of a .cu file as a static library, built once by a project that uses dptk. nvcc is called by itself: a
# project need not have CUDA among its languages.

set(DPTK_NVCC "${CUDAToolkit_NVCC_EXECUTABLE}")
set(DPTK_CUDA_FLAGS -std=c++20 -O3 -Xcompiler -fPIC -ccbin ${CMAKE_CXX_COMPILER})
if(CMAKE_CUDA_ARCHITECTURES MATCHES "^(native|all|all-major)$")
    list(APPEND DPTK_CUDA_FLAGS -arch=${CMAKE_CUDA_ARCHITECTURES})
else()
    set(architectures 80-real 90)
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

# dptk_add_kernels(<target> <file> <include folder>): the library <target>, of <file>.
function(dptk_add_kernels target source include_dir)
    if(TARGET ${target})
        return()
    endif()
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${target}.o)
    add_custom_command(OUTPUT ${object}
        COMMAND ${DPTK_NVCC} ${DPTK_CUDA_FLAGS} -I${include_dir} -MD -MF ${object}.d -c ${source} -o ${object}
        DEPENDS ${source} DEPFILE ${object}.d COMMENT "Compiling the kernels of ${target}" VERBATIM)
    add_library(${target} STATIC ${object})
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
    target_link_libraries(${target} INTERFACE CUDA::cudart)
endfunction()
