# Finds libtorch 1.13 or newer and defines Libtorch::libtorch, for host memory only. Searches the system's paths and
# Libtorch_ROOT, which may be the folder of a Python wheel (site-packages/torch). Does not use libtorch's own CMake files,
# because they require the CUDA Toolkit or a Python, which dptk does not need.

find_path(Libtorch_INCLUDE_DIR torch/csrc/api/include/torch/torch.h)
find_library(Libtorch_LIBRARY torch_cpu)
find_library(Libtorch_C10_LIBRARY c10)
mark_as_advanced(Libtorch_INCLUDE_DIR Libtorch_LIBRARY Libtorch_C10_LIBRARY)

# Clang rejects the headers of 1.13 as C++20, because they use vectors of an incomplete class.
if(Libtorch_INCLUDE_DIR)
    include(CheckCXXSourceCompiles)
    include(CMakePushCheckState)
    cmake_push_check_state(RESET)
    set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY) # without linking
    set(CMAKE_REQUIRED_FLAGS -std=c++20)
    set(CMAKE_REQUIRED_INCLUDES ${Libtorch_INCLUDE_DIR})
    check_cxx_source_compiles("#include <ATen/core/List.h>\n" Libtorch_HEADERS_COMPILE)
    unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
    cmake_pop_check_state()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libtorch
    REQUIRED_VARS Libtorch_LIBRARY Libtorch_C10_LIBRARY Libtorch_INCLUDE_DIR Libtorch_HEADERS_COMPILE)

if(Libtorch_FOUND AND NOT TARGET Libtorch::libtorch)
    add_library(Libtorch::c10 UNKNOWN IMPORTED)
    set_target_properties(Libtorch::c10 PROPERTIES IMPORTED_LOCATION ${Libtorch_C10_LIBRARY})
    add_library(Libtorch::libtorch UNKNOWN IMPORTED)
    set_target_properties(Libtorch::libtorch PROPERTIES
        IMPORTED_LOCATION ${Libtorch_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES "${Libtorch_INCLUDE_DIR};${Libtorch_INCLUDE_DIR}/torch/csrc/api/include"
        INTERFACE_LINK_LIBRARIES Libtorch::c10)
endif()
