# The separately compiled mode: dptk::compiled replaces dptk::dptk, and dptk::compiled_<name> replaces dptk::<name>. These
# are static libraries with the function bodies that the headers only declare in this mode. A project that links them builds
# them in its own build tree, with its compiler, flags and MPI; libraries that no target links are not built.

# The files of src/ with the bodies of each target.
set(DPTK_BODIES_dptk core control comm tcp transports ddp)
foreach(name mpi gloo cuda nccl readers images weights nn onednn nn_cuda)
    set(DPTK_BODIES_${name} ${name})
endforeach()

# The other compiled targets that a target must link.
set(DPTK_BODIES_NEED_nccl cuda)
set(DPTK_BODIES_NEED_nn onednn)
set(DPTK_BODIES_NEED_nn_cuda cuda nn)

# dptk_compiled_name(<result> <name>): dptk::compiled for dptk, dptk::compiled_mpi for mpi.
function(dptk_compiled_name result name)
    string(REGEX REPLACE "^compiled_dptk$" "compiled" compiled compiled_${name})
    set(${result} dptk::${compiled} PARENT_SCOPE)
endfunction()

# dptk_add_compiled(<folder of the sources>): defines the compiled libraries of all existing targets dptk::<name>.
function(dptk_add_compiled folder)
    foreach(name dptk mpi gloo readers images weights onednn nn cuda nccl nn_cuda)
        dptk_compiled_name(alias ${name})
        if(NOT TARGET dptk::${name} OR TARGET ${alias})
            continue()
        endif()
        string(REPLACE "::" "_" target ${alias})
        list(TRANSFORM DPTK_BODIES_${name} REPLACE "(.+)" "${folder}/\\1.cpp" OUTPUT_VARIABLE sources)
        add_library(${target} STATIC EXCLUDE_FROM_ALL ${sources})
        add_library(${alias} ALIAS ${target})
        set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
        target_compile_definitions(${target} PUBLIC DPTK_SEPARATE_COMPILATION)
        # Allows inlining of position-independent functions, because no other library replaces them.
        target_compile_options(${target} PRIVATE
            $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>:-fno-semantic-interposition>)
        target_link_libraries(${target} PUBLIC dptk::${name})
        if(NOT name STREQUAL "dptk")
            target_link_libraries(${target} PUBLIC dptk_compiled)
        endif()
        foreach(other ${DPTK_BODIES_NEED_${name}})
            target_link_libraries(${target} PUBLIC $<TARGET_NAME_IF_EXISTS:dptk_compiled_${other}>)
        endforeach()
    endforeach()
endfunction()
