"""Conan 2 recipe of dptk.

The package has one component for each CMake target, with the same name. dptk's CMake files search for system libraries
(by default MPI) on the machine where the package is used, so the package is the same for all options.
"""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy, load
from conan.tools.layout import basic_layout

required_conan_version = ">=2.0"

# Each component that needs a library: its macros, and the components that it needs in addition to dptk.
COMPONENTS = {
    "mpi": (["DPTK_WITH_MPI"], []),
    "gloo": (["DPTK_WITH_GLOO"], []),
    "readers": ([], []),
    "images": ([], []),
    "weights": ([], []),
    "onednn": (["DPTK_WITH_ONEDNN"], []),
    "cuda": (["DPTK_WITH_CUDA"], []),
    "nccl": (["DPTK_WITH_NCCL"], ["cuda"]),
    "nn_cuda": (["DPTK_WITH_CUDNN"], ["cuda", "nn"]),
}

# Libraries that may be Conan packages instead of system libraries.
PACKAGES = {"openmpi": "openmpi/[>=4.1 <6]", "zlib": "zlib/[>=1.2.11 <2]"}


class DptkConan(ConanFile):
    name = "dptk"
    description = "Data-parallel training for any C++ codebase"
    license = "Apache-2.0"
    topics = ("machine-learning", "distributed-training", "mpi", "nccl", "gloo", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "mpi": ["system", "openmpi", False],
        "gloo": ["system", False],
        "readers": ["system", "zlib", False],
        "images": ["system", False],
        "weights": ["system", False],
        "onednn": ["system", False],
        "cuda": ["system", False],
        "nccl": ["system", False],
        "nn_cuda": ["system", False],
    }
    default_options = {
        "mpi": False,
        "gloo": False,
        "readers": False,
        "images": False,
        "weights": False,
        "onednn": False,
        "cuda": False,
        "nccl": False,
        "nn_cuda": False,
    }
    exports_sources = "include/*", "src/*", "cmake/*", "packaging/conan/*", "LICENSE"
    no_copy_source = True

    def set_version(self):
        header = load(self, os.path.join(self.recipe_folder, "include/dptk/core/version.hpp"))
        self.version = re.search(r'define DPTK_VERSION "(.*)"', header).group(1)

    def layout(self):
        basic_layout(self)

    def requirements(self):
        for name in COMPONENTS:
            if self._source_of(name) in PACKAGES:
                self.requires(PACKAGES[self._source_of(name)])

    def package_id(self):
        self.info.clear()

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration(f"dptk: expected os=Linux, got {self.settings.os}")
        check_min_cppstd(self, 20)
        for name, (_, needs) in COMPONENTS.items():
            for need in needs:
                if self._source_of(name) and need in COMPONENTS and not self._source_of(need):
                    raise ConanInvalidConfiguration(f"dptk: the option {name} needs the option {need}")

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        copy(self, "*", os.path.join(self.source_folder, "include"), os.path.join(self.package_folder, "include"))
        copy(self, "*", os.path.join(self.source_folder, "src"), os.path.join(self.package_folder, "src"))
        modules = os.path.join(self.package_folder, "cmake")
        for pattern in ("DptkLibraries.cmake", "DptkKernels.cmake", "DptkCompiled.cmake", "Find*.cmake"):
            copy(self, pattern, os.path.join(self.source_folder, "cmake"), modules)
        link = load(self, os.path.join(self.source_folder, "packaging/conan/link-from-system.cmake"))
        for name in COMPONENTS:
            with open(os.path.join(modules, f"{name}.cmake"), "w", encoding="utf-8") as file:
                file.write(link)
        copy(self, "compiled.cmake", os.path.join(self.source_folder, "packaging/conan"), modules)

    def package_info(self):
        # dptk::dptk is the target of the component dptk, so the target of all components together is dptk::all.
        self.cpp_info.set_property("cmake_target_name", "dptk::all")
        self.cpp_info.set_property("pkg_config_name", "dptk-all")
        self.cpp_info.set_property("cmake_config_version_compat", "SameMinorVersion")
        modules = [f"cmake/{name}.cmake" for name in COMPONENTS if self._source_of(name) == "system"]
        modules.append("cmake/compiled.cmake")
        self.cpp_info.set_property("cmake_build_modules", modules)

        self._add_component("dptk", system_libs=["pthread", "dl"])
        self._add_component("nn", requires=["dptk"] + (["onednn"] if self.options.onednn else []))
        self._add_component("adapters", requires=["dptk"])
        for name, (defines, needs) in COMPONENTS.items():
            source = self._source_of(name)
            if source:
                package = [] if source == "system" else [f"{source}::{source}"]
                self._add_component(name, defines=defines, requires=["dptk"] + needs + package)

    def _source_of(self, name):
        """The source of a component's library: "system", the name of a package, or None if the component is disabled."""
        return str(self.options.get_safe(name)) if self.options.get_safe(name) else None

    def _add_component(self, name, **values):
        component = self.cpp_info.components[name]
        component.set_property("pkg_config_name", "dptk" if name == "dptk" else f"dptk-{name}")
        component.bindirs = []
        component.libdirs = []
        for key, value in values.items():
            setattr(component, key, value)
