# Installs the headers, a package for find_package(dptk [COMPONENTS mpi gloo cuda nccl readers images weights nn onednn nn_cuda adapters]), and
# files for pkg-config. All of these files are architecture-independent and relocatable.
# The installation components are dptk_dev, and dptk_tools for dptk-run and dptk-info.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME dptk_dev)

set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/dptk)
foreach(name ${DPTK_TARGETS})
    install(TARGETS dptk_${name} EXPORT dptk-${name}-targets FILE_SET HEADERS)
    install(EXPORT dptk-${name}-targets NAMESPACE dptk:: DESTINATION ${package_dir})
endforeach()

# The kernels' sources. The project that uses dptk compiles them.
install(DIRECTORY ${DPTK_INCLUDE_DIR}/dptk DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.cu" PATTERN "*.cuh")

# The function bodies for the compiled mode. The project that uses dptk compiles them, too.
set(DPTK_INSTALL_SOURCEDIR ${CMAKE_INSTALL_DATADIR}/dptk/src)
install(DIRECTORY ${DPTK_SOURCE_DIR}/ DESTINATION ${DPTK_INSTALL_SOURCEDIR})

configure_package_config_file(cmake/dptk-config.cmake.in dptk-config.cmake INSTALL_DESTINATION ${package_dir}
    PATH_VARS CMAKE_INSTALL_INCLUDEDIR DPTK_INSTALL_SOURCEDIR)
write_basic_package_version_file(dptk-config-version.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES
    ${CMAKE_CURRENT_BINARY_DIR}/dptk-config.cmake
    ${CMAKE_CURRENT_BINARY_DIR}/dptk-config-version.cmake
    ${DPTK_CMAKE_DIR}/DptkLibraries.cmake
    ${DPTK_CMAKE_DIR}/DptkKernels.cmake
    ${DPTK_CMAKE_DIR}/DptkCompiled.cmake
    ${DPTK_CMAKE_DIR}/FindoneDNN.cmake
    ${DPTK_CMAKE_DIR}/FindNCCL.cmake
    ${DPTK_CMAKE_DIR}/FindcuDNN.cmake
    DESTINATION ${package_dir})

install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.png"
    PATTERN docs/site EXCLUDE)
# The Debian packages do not contain this component, because they refer to /usr/share/common-licenses.
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT dptk_license)

# pkg-config files: dptk, and dptk-<name> for each library that has been found and needs only flags.
# dptk_add_pkgconfig(<name> DESCRIPTION <text> [REQUIRES <packages>] [CFLAGS <flags>] [LIBS <flags>])
file(RELATIVE_PATH DPTK_PC_PREFIX ${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH DPTK_PC_INCLUDE_DIR ${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig ${CMAKE_INSTALL_FULL_INCLUDEDIR})
file(RELATIVE_PATH DPTK_PC_SOURCE_DIR ${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig
    ${CMAKE_INSTALL_PREFIX}/${DPTK_INSTALL_SOURCEDIR})
function(dptk_add_pkgconfig name)
    cmake_parse_arguments(PC "" "DESCRIPTION;REQUIRES;CFLAGS;LIBS" "" ${ARGN})
    string(REGEX REPLACE "^dptk-" "" bodies ${name})
    list(TRANSFORM DPTK_BODIES_${bodies} REPLACE "(.+)" "\${sourcedir}/\\1.cpp" OUTPUT_VARIABLE PC_SOURCES)
    list(JOIN PC_SOURCES " " PC_SOURCES)
    configure_file(cmake/dptk.pc.in ${name}.pc @ONLY)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)
endfunction()

# dptk_find_mpi_for_pkgconfig(<result>): the name of the pkg-config package of the MPI that has been found.
function(dptk_find_mpi_for_pkgconfig result)
    find_package(PkgConfig QUIET)
    foreach(name mpi-c ompi-c mpich)
        unset(package_FOUND CACHE)
        pkg_check_modules(package QUIET ${name})
        foreach(folder ${package_INCLUDE_DIRS})
            if(folder IN_LIST MPI_CXX_INCLUDE_DIRS)
                set(${result} ${name} PARENT_SCOPE)
                return()
            endif()
        endforeach()
    endforeach()
endfunction()

dptk_add_pkgconfig(dptk DESCRIPTION "${PROJECT_DESCRIPTION}" CFLAGS "-I\${includedir} -pthread" LIBS -pthread)
if(TARGET dptk::mpi)
    dptk_find_mpi_for_pkgconfig(mpi_package)
    if(mpi_package)
        dptk_add_pkgconfig(dptk-mpi DESCRIPTION "dptk over MPI" REQUIRES "dptk, ${mpi_package}"
            CFLAGS -DDPTK_WITH_MPI LIBS -ldl)
    endif()
endif()
if(TARGET dptk::gloo)
    dptk_add_pkgconfig(dptk-gloo DESCRIPTION "dptk over Gloo" REQUIRES dptk CFLAGS -DDPTK_WITH_GLOO LIBS -lgloo)
endif()
if(TARGET dptk::readers)
    dptk_add_pkgconfig(dptk-readers DESCRIPTION "dptk's readers of datasets" REQUIRES "dptk, zlib")
endif()
if(TARGET dptk::images)
    dptk_add_pkgconfig(dptk-images DESCRIPTION "dptk's decoders of images" REQUIRES "dptk, libjpeg, libpng")
endif()
if(TARGET dptk::weights)
    dptk_add_pkgconfig(dptk-weights DESCRIPTION "dptk's readers and writers of weights" REQUIRES "dptk, nlohmann_json")
endif()
if(TARGET dptk::onednn)
    dptk_add_pkgconfig(dptk-onednn DESCRIPTION "dptk's trainer on oneDNN" REQUIRES dptk
        CFLAGS -DDPTK_WITH_ONEDNN LIBS "-ldnnl -ldl")
endif()

unset(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME)
