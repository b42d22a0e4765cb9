# Finds cuDNN 9 or newer and defines cuDNN::cudnn. Searches the CUDA Toolkit, the system's paths and cuDNN_ROOT, which may be
# the folder of a Python wheel (site-packages/nvidia/cudnn), in which only libcudnn.so.9 exists.

find_path(cuDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(cuDNN_LIBRARY NAMES cudnn libcudnn.so.9 NAMES_PER_DIR HINTS ${CUDAToolkit_LIBRARY_DIR})
mark_as_advanced(cuDNN_INCLUDE_DIR cuDNN_LIBRARY)

if(EXISTS ${cuDNN_INCLUDE_DIR}/cudnn_version.h) # cuDNN 7 does not have this file
    file(STRINGS ${cuDNN_INCLUDE_DIR}/cudnn_version.h numbers REGEX "define CUDNN_(MAJOR|MINOR|PATCHLEVEL) ")
    string(REGEX REPLACE "[^0-9;]" "" numbers "${numbers}")
    string(REPLACE ";" "." cuDNN_VERSION "${numbers}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(cuDNN REQUIRED_VARS cuDNN_LIBRARY cuDNN_INCLUDE_DIR VERSION_VAR cuDNN_VERSION)

if(cuDNN_FOUND AND NOT TARGET cuDNN::cudnn)
    add_library(cuDNN::cudnn UNKNOWN IMPORTED)
    set_target_properties(cuDNN::cudnn PROPERTIES
        IMPORTED_LOCATION ${cuDNN_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${cuDNN_INCLUDE_DIR})
endif()
