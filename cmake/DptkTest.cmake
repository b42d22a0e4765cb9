# Registers tests with CTest.

include_guard()

# The transports between processes that are there.
set(DPTK_TRANSPORTS)
foreach(transport mpi gloo)
    if(TARGET dptk::${transport})
        list(APPEND DPTK_TRANSPORTS dptk::${transport})
    endif()
endforeach()

# The two MPIs start, and fail, in ways of their own.
set(DPTK_MPI_IS_OPEN_MPI OFF)
if(TARGET dptk::mpi AND NOT MPI_CXX_COMPILER MATCHES "mpich" AND NOT MPI_CXX_LIBRARIES MATCHES "mpich")
    set(DPTK_MPI_IS_OPEN_MPI ON)
endif()

# mpirun refuses root, and more ranks than cores, unless told otherwise.
set(DPTK_MPI_ENVIRONMENT
    OMPI_ALLOW_RUN_AS_ROOT=1
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe)

# dptk_add_test(<room> LIBRARIES <target>... [SOURCES <glob>...] [LABELS <label>...] [UNITY] [RANKS])
# The doctest program of tests/<room>/*.cpp, or of SOURCES, which runs as one process. UNITY compiles them together:
# faster where the headers that they share take the time. With RANKS it also runs at 1, 2, 3 and 4 ranks: under mpirun
# over MPI (also where MPI serves the main thread alone), and under dptk-run over Gloo.
function(dptk_add_test room)
    cmake_parse_arguments(ARG "RANKS;UNITY" "" "LIBRARIES;SOURCES;LABELS" ${ARGN})
    if(NOT ARG_SOURCES)
        set(ARG_SOURCES ${room}/*.cpp)
    endif()
    file(GLOB sources CONFIGURE_DEPENDS ${ARG_SOURCES})
    if(NOT sources)
        message(FATAL_ERROR "dptk_add_test(${room}): there is no ${ARG_SOURCES}")
    endif()

    dptk_add_program(test_${room} SOURCES ${sources} LIBRARIES ${ARG_LIBRARIES} dptk_test_main)
    set_target_properties(test_${room} PROPERTIES UNITY_BUILD ${ARG_UNITY})
    add_test(NAME ${room} COMMAND test_${room})
    set(timeout 300)
    if(DPTK_SANITIZE)
        set(timeout 900)
    endif()
    set_tests_properties(${room} PROPERTIES TIMEOUT ${timeout} LABELS "${ARG_LABELS}")

    if(NOT ARG_RANKS OR NOT DPTK_TRANSPORTS)
        return()
    endif()
    target_link_libraries(test_${room} PRIVATE dptk_test_transports)
    if(TARGET dptk::mpi)
        dptk_add_mpi_run(${room}.funneled 3 COMMAND test_${room})
        set_property(TEST ${room}.funneled.mpi.3 APPEND PROPERTY ENVIRONMENT
            DPTK_TEST_RANKS=1 DPTK_TEST_MPI=funneled DPTK_PROCESSORS=64)
    endif()
    foreach(ranks 1 2 3 4)
        # With processors to spare, buckets leave early whatever the machine has; without, none does.
        set(environment DPTK_TEST_RANKS=1)
        if(ranks EQUAL 3)
            list(APPEND environment DPTK_PROCESSORS=64)
        elseif(ranks EQUAL 4)
            list(APPEND environment DPTK_PROCESSORS=1)
        endif()
        if(TARGET dptk::mpi)
            dptk_add_mpi_run(${room} ${ranks} COMMAND test_${room})
            set_property(TEST ${room}.mpi.${ranks} APPEND PROPERTY ENVIRONMENT ${environment})
        endif()
        if(TARGET dptk::gloo AND TARGET dptk-run)
            add_test(NAME ${room}.gloo.${ranks}
                COMMAND dptk-run --nproc-per-node ${ranks} -- $<TARGET_FILE:test_${room}>)
            set_tests_properties(${room}.gloo.${ranks} PROPERTIES
                TIMEOUT 120 LABELS gloo PROCESSORS ${ranks} ENVIRONMENT "${environment}")
        endif()
    endforeach()
    if(TARGET dptk::mpi)
        # No copies from process to process, as in containers that do not allow them: long messages need progress.
        set_property(TEST ${room}.mpi.2 APPEND PROPERTY ENVIRONMENT OMPI_MCA_btl_vader_single_copy_mechanism=none)
    endif()
endfunction()

# dptk_add_mpi_run(<name> <ranks> COMMAND <program> <argument>... [EXPECT_FAILURE <regex>])
# Runs the program under mpirun. With EXPECT_FAILURE it must end within 40 s, with an exit status that is not 0, and
# print what the expression matches.
function(dptk_add_mpi_run name ranks)
    cmake_parse_arguments(ARG "" "EXPECT_FAILURE" "COMMAND" ${ARGN})
    list(POP_FRONT ARG_COMMAND program)
    set(command ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:${program}> ${ARG_COMMAND})
    if(ARG_EXPECT_FAILURE)
        set(command ${PROJECT_SOURCE_DIR}/tests/support/expect-failure 40 ${ARG_EXPECT_FAILURE} ${command})
    endif()
    add_test(NAME ${name}.mpi.${ranks} COMMAND ${command})
    # MPIs whose ranks spin take long where others want the cores.
    set_tests_properties(${name}.mpi.${ranks} PROPERTIES
        TIMEOUT 300 LABELS mpi PROCESSORS ${ranks} ENVIRONMENT "${DPTK_MPI_ENVIRONMENT}")
endfunction()
