# Compile options of dptk's own programs (tests, tools, examples, benchmarks), and the functions that define them.

option(DPTK_HEADER_ONLY "Build tests, tools, examples and benchmarks in header-only mode" OFF)

# Tests and examples are compiled more often than they are run, so this flag favors compile time. dptk's own bodies use the
# build type's flags. If the value is empty, so do the tests and examples.
set(DPTK_TEST_OPTIMIZATION -Og CACHE STRING "Optimization flag of the tests' own code, after the build type's flags")

add_library(dptk_program_options INTERFACE)
target_compile_options(dptk_program_options INTERFACE
    -Wall -Wextra -Wpedantic -Wconversion $<$<BOOL:${DPTK_WARNINGS_AS_ERRORS}>:-Werror>)
if(DPTK_SANITIZE)
    # A sanitizer error ends the program, so that the test fails.
    target_compile_options(dptk_program_options INTERFACE
        -fsanitize=${DPTK_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(dptk_program_options INTERFACE -fsanitize=${DPTK_SANITIZE})
endif()

# dptk's function bodies are compiled with the same options.
foreach(name ${DPTK_TARGETS})
    if(TARGET dptk_compiled_${name})
        target_link_libraries(dptk_compiled_${name} PRIVATE dptk_program_options)
    endif()
endforeach()
target_link_libraries(dptk_compiled PRIVATE dptk_program_options)

# dptk_link(<target> PUBLIC|PRIVATE <library>...): calls target_link_libraries, and replaces dptk::<name> by
# dptk::compiled_<name> unless DPTK_HEADER_ONLY is set. $<TARGET_NAME_IF_EXISTS:dptk::name> may be missing.
function(dptk_link target scope)
    foreach(library ${ARGN})
        if(library MATCHES "^[$]<TARGET_NAME_IF_EXISTS:(dptk::.*)>$")
            set(library ${CMAKE_MATCH_1})
            if(NOT TARGET ${library})
                continue()
            endif()
        endif()
        if(library MATCHES "^dptk::(.*)$" AND NOT DPTK_HEADER_ONLY)
            dptk_compiled_name(compiled ${CMAKE_MATCH_1})
            if(TARGET ${compiled})
                set(library ${compiled})
            endif()
        endif()
        target_link_libraries(${target} ${scope} ${library})
    endforeach()
endfunction()

# dptk_add_program(<name> SOURCES <file>... LIBRARIES <target>...): adds an executable with these options.
function(dptk_add_program name)
    cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    dptk_link(${name} PRIVATE ${ARG_LIBRARIES} dptk_program_options)
    set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF)
endfunction()
