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

# Which tests there are: those that run in one process, those of what launchers start, what is timed and what consumes
# dptk, or all. scripts/test has the first under sanitizers, and the second optimised.
set(DPTK_TEST_SUITES all CACHE STRING "Tests to build: all, in_process or launched")
set_property(CACHE DPTK_TEST_SUITES PROPERTY STRINGS all in_process launched)
if(NOT DPTK_TEST_SUITES MATCHES "^(all|in_process|launched)$")
    message(FATAL_ERROR "invalid DPTK_TEST_SUITES='${DPTK_TEST_SUITES}': expected all, in_process or launched")
endif()

# What runs all verbs over another transport, or in other memory, repeats the arithmetic of comm: a few dtypes do there.
option(DPTK_TEST_FEW_DTYPES "Run verbs with all dtypes over one transport alone" OFF)

# dptk_use_few_dtypes(<test>...): where the option says so.
function(dptk_use_few_dtypes)
    if(DPTK_TEST_FEW_DTYPES)
        set_property(TEST ${ARGN} APPEND PROPERTY ENVIRONMENT DPTK_TEST_DTYPES=few)
    endif()
endfunction()

# dptk_add_test(<room> LIBRARIES <target>... [SOURCES <glob>...] [LABELS <label>...] [UNITY] [RANKS] [OPTIMISED]
#     [WAITS] [OWN_HEADERS])
# The doctest program of tests/<room>/*.cpp, or of SOURCES, which runs in one process. UNITY compiles them together:
# faster where the headers that they share take the time. With RANKS it also runs on ranks that a launcher starts: four
# over MPI and Gloo, in groups of 1, 2, 3 and 4, and three over an MPI that serves the main thread alone. With OPTIMISED
# it is also among what is launched. With WAITS, it mostly waits: see dptk_tests_wait. With OWN_HEADERS it does without
# the precompiled headers, which another library's macros do not fit.
function(dptk_add_test room)
    cmake_parse_arguments(ARG "OPTIMISED;OWN_HEADERS;RANKS;UNITY;WAITS" "" "LIBRARIES;SOURCES;LABELS" ${ARGN})
    if(DPTK_TEST_SUITES STREQUAL "launched" AND NOT ARG_RANKS AND NOT ARG_OPTIMISED)
        return()
    endif()
    if(NOT ARG_SOURCES)
        set(ARG_SOURCES ${room}/*.cpp)
    endif()
    file(GLOB sources CONFIGURE_DEPENDS ${ARG_SOURCES})
    if(NOT sources)
        message(FATAL_ERROR "dptk_add_test(${room}): there is no ${ARG_SOURCES}")
    endif()

    dptk_add_program(test_${room} SOURCES ${sources} LIBRARIES ${ARG_LIBRARIES} dptk_test_ranks)
    set_target_properties(test_${room} PROPERTIES UNITY_BUILD ${ARG_UNITY})
    if(NOT ARG_OWN_HEADERS)
        target_precompile_headers(test_${room} REUSE_FROM dptk_test_ranks)
    endif()
    if(NOT DPTK_TEST_SUITES STREQUAL "launched" OR ARG_OPTIMISED)
        add_test(NAME ${room} COMMAND test_${room})
        set_tests_properties(${room} PROPERTIES TIMEOUT 900 LABELS "${ARG_LABELS}")
        if(ARG_WAITS)
            dptk_tests_wait(${room})
        endif()
    endif()

    if(NOT ARG_RANKS OR NOT DPTK_TRANSPORTS OR DPTK_TEST_SUITES STREQUAL "in_process")
        return()
    endif()
    target_link_libraries(test_${room} PRIVATE dptk_test_transports)
    # With processors to spare, buckets leave early whatever the machine has; without, none does.
    if(TARGET dptk::mpi)
        dptk_add_mpi_run(${room} 4 COMMAND test_${room})
        set_property(TEST ${room}.mpi.4 APPEND PROPERTY ENVIRONMENT DPTK_TEST_RANKS=groups DPTK_PROCESSORS=64)
        set_property(TEST ${room}.mpi.4 PROPERTY TIMEOUT 900)
        dptk_tests_wait(${room}.mpi.4)
        # No copies from process to process, as in containers that do not allow them: long messages need progress.
        dptk_add_mpi_run(${room}.funneled 3 COMMAND test_${room})
        set_property(TEST ${room}.funneled.mpi.3 APPEND PROPERTY ENVIRONMENT DPTK_TEST_RANKS=1
            DPTK_TEST_MPI=funneled DPTK_PROCESSORS=64 OMPI_MCA_btl_vader_single_copy_mechanism=none)
        dptk_use_few_dtypes(${room}.funneled.mpi.3)
    endif()
    if(TARGET dptk::gloo AND TARGET dptk-run)
        add_test(NAME ${room}.gloo.4 COMMAND dptk-run --nproc-per-node 4 -- $<TARGET_FILE:test_${room}>)
        set_tests_properties(${room}.gloo.4 PROPERTIES
            TIMEOUT 900 LABELS gloo PROCESSORS 2 ENVIRONMENT "DPTK_TEST_RANKS=groups;DPTK_PROCESSORS=1")
        dptk_use_few_dtypes(${room}.gloo.4)
        dptk_tests_wait(${room}.gloo.4)
    endif()
endfunction()

# dptk_add_mpi_run(<name> <ranks> COMMAND <program> <argument>... [EXPECT_FAILURE <regex>])
# Runs the program under mpirun. With EXPECT_FAILURE it must end within 120 s, with an exit status that is not 0, and
# print what the expression matches.
function(dptk_add_mpi_run name ranks)
    cmake_parse_arguments(ARG "" "EXPECT_FAILURE" "COMMAND" ${ARGN})
    list(POP_FRONT ARG_COMMAND program)
    set(command ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:${program}> ${ARG_COMMAND})
    if(ARG_EXPECT_FAILURE)
        set(command ${PROJECT_SOURCE_DIR}/tests/support/expect-failure 120 ${ARG_EXPECT_FAILURE} ${command})
    endif()
    add_test(NAME ${name}.mpi.${ranks} COMMAND ${command})
    # MPIs whose ranks spin take long where others want the cores.
    set_tests_properties(${name}.mpi.${ranks} PROPERTIES
        TIMEOUT 300 LABELS mpi PROCESSORS 2 ENVIRONMENT "${DPTK_MPI_ENVIRONMENT}")
endfunction()

# dptk_tests_wait(<test>...): these mostly wait. scripts/test runs them after the others, eight at a time, so that their
# deadlines must be long.
function(dptk_tests_wait)
    set_property(TEST ${ARGN} APPEND PROPERTY LABELS waits)
    set_property(TEST ${ARGN} PROPERTY PROCESSORS 1)
endfunction()
