# The separately compiled mode: dptk::compiled in place of dptk::dptk, and dptk::compiled_<name> in place of dptk::<name>.
# Static libraries of what the headers only declare then. A project that links them builds them in its own tree, with its
# compiler, flags and MPI; what nothing links is not built.

# The files of src/ that have the bodies of each target,
set(DPTK_BODIES_dptk core control comm transports ddp)
foreach(name mpi gloo cuda nccl readers nn onednn nn_cuda)
    set(DPTK_BODIES_${name} ${name})
endforeach()

# and what else has to be linked with it.
set(DPTK_BODIES_NEED_nccl cuda)
set(DPTK_BODIES_NEED_nn onednn)
set(DPTK_BODIES_NEED_nn_cuda cuda nn)

# dptk_compiled_name(<result> <name>): dptk::compiled for dptk, dptk::compiled_mpi for mpi.
function(dptk_compiled_name result name)
    string(REGEX REPLACE "^compiled_dptk$" "compiled" compiled compiled_${name})
    set(${result} dptk::${compiled} PARENT_SCOPE)
endfunction()

# dptk_add_compiled(<folder of the sources>): the libraries for all targets dptk::<name> that exist.
function(dptk_add_compiled folder)
    foreach(name dptk mpi gloo readers onednn nn cuda nccl nn_cuda)
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
        # Position-independent functions are inlined into each other all the same: nothing replaces them.
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
