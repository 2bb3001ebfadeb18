import os

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator

from spack.package import *


class Farandole(CMakePackage):
    """Trains LibTorch models data-parallel across the ranks of a Slurm job, and says where the time went."""

    # A development version: where the sources come from is said by the environment (develop:) or the site.
    homepage = "https://example.org/farandole"
    git = "https://example.org/farandole.git"

    license("Apache-2.0")

    version("main", branch="main")

    variant("torch", default=True, description="The trainer, which needs LibTorch; without it: launcher, analyzer")

    variant("cuda", default=False, description="GPU activity in the timeline, through CUPTI")

    # Kept in step with CMakeLists.txt, tools/setup and README.md.
    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("help2man", type="build")

    # Not any mpi: the launcher speaks to Open MPI's mpirun, and to Slurm through PMIx.
    depends_on("openmpi@4.1:")
    depends_on("hdf5@1.10.7:")
    depends_on("boost@1.70: +program_options")
    depends_on("nlohmann-json@3.9:")
    depends_on("simdjson@2:")
    depends_on("zlib-api")
    depends_on("sqlite@3.30:")
    depends_on("isa-l@2.29:")
    # libcsv, for tables in CSV files, has no package of Spack: it is used where the site has it.
    depends_on("fmt@8:10")  # 11 moves fmt::join to another header
    depends_on("spdlog@1.10:")
    depends_on("xxhash@0.8:")
    depends_on("py-torch@2.1:", when="+torch")
    depends_on("cuda@13", when="+cuda")

    depends_on("googletest@1.12: +gmock", type="test")
    depends_on("benchmark@1.7:", type="test")

    conflicts("%gcc@:10", msg="C++20 is needed")
    conflicts("%clang@:13", msg="C++20 is needed")

    generator("ninja")

    def cmake_args(self):
        args = [
            self.define_from_variant("FARANDOLE_TORCH", "torch"),
            self.define("BUILD_TESTING", self.run_tests),
            self.define("CMAKE_UNITY_BUILD", True),  # as the preset release
        ]
        if self.spec.satisfies("+torch"):
            # .../site-packages/torch/share/cmake: tools/cmake/FindTorchCpu.cmake wants the folder two above.
            cmake_folder = self.spec["py-torch"].package.cmake_prefix_paths[0]
            args.append(self.define("TorchCpu_ROOT", os.path.dirname(os.path.dirname(cmake_folder))))
        return args
