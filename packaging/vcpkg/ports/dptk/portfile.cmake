# Builds from the source tree that contains this port.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)

set(VCPKG_BUILD_TYPE release) # only headers and tools, which need no debug build

vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS
    FEATURES
        tools DPTK_BUILD_TOOLS
    INVERTED_FEATURES
        mpi CMAKE_DISABLE_FIND_PACKAGE_MPI
        gloo CMAKE_DISABLE_FIND_PACKAGE_Gloo
        readers CMAKE_DISABLE_FIND_PACKAGE_ZLIB
        images CMAKE_DISABLE_FIND_PACKAGE_JPEG
        weights CMAKE_DISABLE_FIND_PACKAGE_nlohmann_json
        onednn CMAKE_DISABLE_FIND_PACKAGE_oneDNN
        cuda CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit
        nccl CMAKE_DISABLE_FIND_PACKAGE_NCCL
        nn-cuda CMAKE_DISABLE_FIND_PACKAGE_cuDNN
)

vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        -DDPTK_BUILD_TESTS=OFF
        -DDPTK_BUILD_EXAMPLES=OFF
        ${FEATURE_OPTIONS}
    MAYBE_UNUSED_VARIABLES
        CMAKE_DISABLE_FIND_PACKAGE_NCCL
        CMAKE_DISABLE_FIND_PACKAGE_cuDNN
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/dptk)
vcpkg_fixup_pkgconfig()

if("tools" IN_LIST FEATURES)
    vcpkg_copy_tools(TOOL_NAMES dptk-run dptk-info AUTO_CLEAN)
endif()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/doc")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
