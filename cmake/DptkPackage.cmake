# CPack packages: a tarball of the installation, one of the sources, and the Debian packages libdptk-dev (architecture all)
# and dptk-tools. docs/installing.md describes how to create them.

set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "data-parallel training for any C++ codebase")
set(CPACK_PACKAGE_VENDOR "the dptk authors")
set(CPACK_PACKAGE_CONTACT "dptk maintainers <maintainers@dptk.invalid>" CACHE STRING "Maintainer of the packages")
set(CPACK_PACKAGE_FILE_NAME dptk-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_RESOURCE_FILE_README ${PROJECT_SOURCE_DIR}/README.md)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_SOURCE_GENERATOR TGZ)
set(CPACK_SOURCE_PACKAGE_FILE_NAME dptk-${PROJECT_VERSION})
# These are regular expressions, which CPack reads from quoted strings.
foreach(folder SOURCE BINARY)
    string(REGEX REPLACE "[][+.*?^$()|]" "\\\\\\\\\\0" ${folder}_PATTERN "${PROJECT_${folder}_DIR}")
endforeach()
set(CPACK_SOURCE_IGNORE_FILES /\\\\.git/ /\\\\.cache/ /__pycache__/
    ^${SOURCE_PATTERN}/build ^${SOURCE_PATTERN}/bundle/ ^${SOURCE_PATTERN}/test_package/build/
    ^${SOURCE_PATTERN}/CMakeUserPresets.json ^${BINARY_PATTERN}/)

set(CPACK_COMPONENTS_ALL dptk_dev)
if(TARGET dptk-run)
    list(APPEND CPACK_COMPONENTS_ALL dptk_tools)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_DPTK_DEV_PACKAGE_NAME libdptk-dev)
set(CPACK_DEBIAN_DPTK_DEV_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_DPTK_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DPTK_DEV_PACKAGE_RECOMMENDS "dptk-tools, libopenmpi-dev | libmpich-dev")
set(CPACK_DEBIAN_DPTK_DEV_PACKAGE_SUGGESTS "cmake (>= 3.25), pkg-config, libgloo-dev, libdnnl-dev, zlib1g-dev, libjpeg-dev, libpng-dev, nlohmann-json3-dev")
set(CPACK_COMPONENT_DPTK_DEV_DESCRIPTION
    "dptk provides data-parallel training for C++ programs, like PyTorch's
DistributedDataParallel for Python: programs keep their containers and their
training loop, and dptk averages the gradients of their ranks over MPI, Gloo,
NCCL or threads. This package contains the headers of the C++20 library.")

set(CPACK_DEBIAN_DPTK_TOOLS_PACKAGE_NAME dptk-tools)
set(CPACK_DEBIAN_DPTK_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_DPTK_TOOLS_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENT_DPTK_TOOLS_DESCRIPTION
    "dptk-run starts the ranks of a program that trains with dptk, on one host or
on several, and reports the rank that failed first. dptk-info describes a
machine, and shows where each rank of a job runs and how fast it is.")

# The changelog and copyright files that Debian packages must contain. Other installations do not have them.
string(TIMESTAMP DPTK_CHANGELOG_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
configure_file(packaging/debian/changelog.in changelog @ONLY)
file(ARCHIVE_CREATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/changelog.gz PATHS ${CMAKE_CURRENT_BINARY_DIR}/changelog
    FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9)
foreach(component ${CPACK_COMPONENTS_ALL})
    string(TOUPPER ${component} name)
    install(FILES packaging/debian/copyright ${CMAKE_CURRENT_BINARY_DIR}/changelog.gz
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${name}_PACKAGE_NAME}
        COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()

include(CPack)
