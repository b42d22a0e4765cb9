# Functions that register tests with CTest.

include_guard()

# The available transports between processes.
set(DPTK_TRANSPORTS dptk::dptk)
foreach(transport mpi gloo)
    if(TARGET dptk::${transport})
        list(APPEND DPTK_TRANSPORTS dptk::${transport})
    endif()
endforeach()

# Open MPI and MPICH start and fail differently.
set(DPTK_MPI_IS_OPEN_MPI OFF)
if(TARGET dptk::mpi AND NOT MPI_CXX_COMPILER MATCHES "mpich" AND NOT MPI_CXX_LIBRARIES MATCHES "mpich")
    set(DPTK_MPI_IS_OPEN_MPI ON)
endif()

# By default mpirun refuses to run as root, and to start more ranks than cores.
set(DPTK_MPI_ENVIRONMENT
    OMPI_ALLOW_RUN_AS_ROOT=1
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe)

# The tests to build: those that run in one process (in_process); those that a launcher starts, that measure times, or that
# use dptk from another project (launched); or all. scripts/test runs the first with sanitizers, the second optimized.
set(DPTK_TEST_SUITES all CACHE STRING "Tests to build: all, in_process or launched")
set_property(CACHE DPTK_TEST_SUITES PROPERTY STRINGS all in_process launched)
if(NOT DPTK_TEST_SUITES MATCHES "^(all|in_process|launched)$")
    message(FATAL_ERROR "invalid DPTK_TEST_SUITES='${DPTK_TEST_SUITES}': expected all, in_process or launched")
endif()

# Tests of all collectives over other transports, or in other memory, repeat the arithmetic of comm. With this option they
# use only a few dtypes.
option(DPTK_TEST_QUICK "Test collectives with all dtypes over one transport only, leave tests that are slow with a \
sanitizer to the suite `launched`, and leave out what takes long to compile: tests on a real GPU, of both modes in one \
program, and of libtorch without dptk" OFF)
# Whether such tests are left out here.
if(DPTK_TEST_QUICK AND DPTK_TEST_SUITES STREQUAL "in_process")
    set(DPTK_TESTS_WITHOUT_SLOW ON)
endif()

# dptk_use_few_dtypes(<test>...): makes these tests use few dtypes if DPTK_TEST_QUICK is set.
function(dptk_use_few_dtypes)
    if(DPTK_TEST_QUICK)
        set_property(TEST ${ARGN} APPEND PROPERTY ENVIRONMENT DPTK_TEST_DTYPES=few)
    endif()
endfunction()

# dptk_add_test(<name> LIBRARIES <target>... [SOURCES <glob>...] [LABELS <label>...] [UNITY] [RANKS] [OPTIMIZED]
#     [WAITS] [OWN_HEADERS])
# Adds the doctest program of tests/<name>/*.cpp, or of SOURCES, which runs in one process.
#   UNITY        compiles the files as one, which is faster if they share expensive headers
#   RANKS        also runs it on ranks that a launcher starts: four over MPI, TCP and Gloo, in groups of 1, 2, 3 and 4, and
#                three over an MPI with the thread level MPI_THREAD_FUNNELED
#   OPTIMIZED    adds it to the test suite `launched` as well
#   WAITS        the tests spend most of their time waiting: see dptk_tests_wait
#   OWN_HEADERS  does not use the precompiled headers, which conflict with another library's macros
function(dptk_add_test name)
    cmake_parse_arguments(ARG "OPTIMIZED;OWN_HEADERS;RANKS;UNITY;WAITS" "" "LIBRARIES;SOURCES;LABELS" ${ARGN})
    if(DPTK_TEST_SUITES STREQUAL "launched" AND NOT ARG_RANKS AND NOT ARG_OPTIMIZED)
        return()
    endif()
    if(NOT ARG_SOURCES)
        set(ARG_SOURCES ${name}/*.cpp)
    endif()
    file(GLOB sources CONFIGURE_DEPENDS ${ARG_SOURCES})
    if(NOT sources)
        message(FATAL_ERROR "dptk_add_test(${name}): no file matches ${ARG_SOURCES}")
    endif()

    dptk_add_program(test_${name} SOURCES ${sources} LIBRARIES ${ARG_LIBRARIES} dptk_test_ranks)
    set_target_properties(test_${name} PROPERTIES UNITY_BUILD ${ARG_UNITY})
    if(NOT ARG_OWN_HEADERS)
        target_precompile_headers(test_${name} REUSE_FROM dptk_test_ranks)
    endif()
    if(NOT DPTK_TEST_SUITES STREQUAL "launched" OR ARG_OPTIMIZED)
        add_test(NAME ${name} COMMAND test_${name})
        set(timeout 900)
        if(DPTK_SANITIZE STREQUAL "thread")
            set(timeout 1800)
        endif()
        set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} LABELS "${ARG_LABELS}")
        if(ARG_WAITS)
            dptk_tests_wait(${name})
        endif()
    endif()

    if(NOT ARG_RANKS OR NOT DPTK_TRANSPORTS OR DPTK_TEST_SUITES STREQUAL "in_process")
        return()
    endif()
    target_link_libraries(test_${name} PRIVATE dptk_test_transports)
    # With spare processors, buckets are sent during backward, otherwise in synchronize(). DPTK_PROCESSORS makes this
    # independent of the machine.
    if(TARGET dptk::mpi)
        dptk_add_mpi_run(${name} 4 COMMAND test_${name})
        set_property(TEST ${name}.mpi.4 APPEND PROPERTY ENVIRONMENT DPTK_TEST_RANKS=groups DPTK_PROCESSORS=64)
        set_property(TEST ${name}.mpi.4 PROPERTY TIMEOUT 900)
        dptk_tests_wait(${name}.mpi.4)
        # Disables copies between processes, as in containers that forbid them: long messages then need MPI progress.
        dptk_add_mpi_run(${name}.funneled 3 COMMAND test_${name})
        set_property(TEST ${name}.funneled.mpi.3 APPEND PROPERTY ENVIRONMENT DPTK_TEST_RANKS=1
            DPTK_TEST_MPI=funneled DPTK_PROCESSORS=64 OMPI_MCA_btl_vader_single_copy_mechanism=none)
        dptk_use_few_dtypes(${name}.funneled.mpi.3)
    endif()
    if(TARGET dptk-run)
        foreach(transport tcp gloo)
            if(transport STREQUAL "gloo" AND NOT TARGET dptk::gloo)
                continue()
            endif()
            set(test ${name}.${transport}.4)
            add_test(NAME ${test} COMMAND dptk-run --nproc-per-node 4 -- $<TARGET_FILE:test_${name}>)
            set_tests_properties(${test} PROPERTIES TIMEOUT 900 LABELS ${transport} PROCESSORS 2
                ENVIRONMENT "DPTK_BACKEND=${transport};DPTK_TEST_RANKS=groups;DPTK_PROCESSORS=1")
            if(transport STREQUAL "gloo") # messages, over which everything works as over TCP
                set_property(TEST ${test} APPEND PROPERTY LABELS matrix)
            endif()
            dptk_use_few_dtypes(${test})
            dptk_tests_wait(${test})
        endforeach()
    endif()
endfunction()

# dptk_add_mpi_run(<name> <ranks> COMMAND <program> <argument>... [EXPECT_FAILURE <regex>])
# Runs the program under mpirun. With EXPECT_FAILURE it must end within 120 s, with a nonzero exit status, and its output
# must match the regex.
function(dptk_add_mpi_run name ranks)
    cmake_parse_arguments(ARG "" "EXPECT_FAILURE" "COMMAND" ${ARGN})
    list(POP_FRONT ARG_COMMAND program)
    set(command ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:${program}> ${ARG_COMMAND})
    if(ARG_EXPECT_FAILURE)
        set(command ${PROJECT_SOURCE_DIR}/tests/support/expect-failure 120 ${ARG_EXPECT_FAILURE} ${command})
    endif()
    add_test(NAME ${name}.mpi.${ranks} COMMAND ${command})
    # Ranks that spin in MPI take long if other tests use the cores.
    set_tests_properties(${name}.mpi.${ranks} PROPERTIES
        TIMEOUT 300 LABELS mpi PROCESSORS 2 ENVIRONMENT "${DPTK_MPI_ENVIRONMENT}")
endfunction()

# dptk_tests_wait(<test>...): marks tests that spend most of their time waiting. scripts/test runs them after the others,
# eight at a time, so their timeouts must be long.
function(dptk_tests_wait)
    set_property(TEST ${ARGN} APPEND PROPERTY LABELS waits)
    set_property(TEST ${ARGN} PROPERTY PROCESSORS 1)
endfunction()
