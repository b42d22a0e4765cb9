# Installs the headers and a package for find_package(dptk [COMPONENTS mpi gloo cuda nccl readers nn onednn nn_cuda]).

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/dptk)
foreach(name dptk mpi gloo cuda nccl readers nn onednn nn_cuda)
    install(TARGETS dptk_${name} EXPORT dptk-${name}-targets FILE_SET HEADERS)
    install(EXPORT dptk-${name}-targets NAMESPACE dptk:: DESTINATION ${package_dir})
endforeach()

# The kernels, which the project that uses dptk compiles.
install(DIRECTORY ${DPTK_INCLUDE_DIR}/dptk DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.cu" PATTERN "*.cuh")

configure_package_config_file(cmake/dptk-config.cmake.in dptk-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(dptk-config-version.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES
    ${CMAKE_CURRENT_BINARY_DIR}/dptk-config.cmake
    ${CMAKE_CURRENT_BINARY_DIR}/dptk-config-version.cmake
    ${CMAKE_CURRENT_LIST_DIR}/FindoneDNN.cmake
    ${CMAKE_CURRENT_LIST_DIR}/FindNCCL.cmake
    ${CMAKE_CURRENT_LIST_DIR}/FindcuDNN.cmake
    ${CMAKE_CURRENT_LIST_DIR}/DptkKernels.cmake
    DESTINATION ${package_dir})
