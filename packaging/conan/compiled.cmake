# dptk::compiled and its siblings, for the targets that Conan's files have just defined.
include(${CMAKE_CURRENT_LIST_DIR}/DptkCompiled.cmake)
dptk_add_compiled(${CMAKE_CURRENT_LIST_DIR}/../src)
