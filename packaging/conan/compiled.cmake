# Defines dptk::compiled and dptk::compiled_<name> for the targets that Conan's generated files have defined.
include(${CMAKE_CURRENT_LIST_DIR}/DptkCompiled.cmake)
dptk_add_compiled(${CMAKE_CURRENT_LIST_DIR}/../src)
