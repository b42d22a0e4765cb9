# What tests and examples are compiled with.

add_library(dptk_program_options INTERFACE)
target_compile_options(dptk_program_options INTERFACE
    -Wall -Wextra -Wpedantic -Wconversion $<$<BOOL:${DPTK_WARNINGS_AS_ERRORS}>:-Werror>)
if(DPTK_SANITIZE)
    target_compile_options(dptk_program_options INTERFACE -fsanitize=${DPTK_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(dptk_program_options INTERFACE -fsanitize=${DPTK_SANITIZE})
endif()

# dptk_add_program(<name> SOURCES <file>... LIBRARIES <target>...)
function(dptk_add_program name)
    cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
    add_executable(${name} ${ARG_SOURCES})
    target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} dptk_program_options)
    set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF)
endfunction()
