import os

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Farandole(CMakePackage, CudaPackage):
    """Trains LibTorch models data-parallel across the ranks of a Slurm job, and says where the time went."""

    # There is no home page: this is a development version, and its sources are those of the environment (develop:).
    license("Apache-2.0")

    version("main")

    variant("torch", default=True, description="The trainer, which needs LibTorch; without it: launcher, analyzer")
    # Of CudaPackage: cuda, cuda_arch. They choose the LibTorch; Farandole compiles its few kernels for all GPUs.
    variant("nccl", default=False, when="+cuda", description="Collectives on GPUs, through NCCL")
    variant("python", default=True, description="The package farandole is found by Python, for scripts of PyTorch")
    variant("tests", default=False, description="Build the tests; spack install --test=root builds and runs them")

    # Kept in step with CMakeLists.txt, tools/setup and README.md.
    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("help2man", type="build")

    # Not any mpi: the launcher speaks to Open MPI's mpirun, and to Slurm through PMIx.
    depends_on("openmpi@4.1:", type=("build", "link", "run"))
    depends_on("hdf5@1.10.7:")
    depends_on("boost@1.70: +program_options")
    depends_on("nlohmann-json@3.9:")
    depends_on("zlib-api")
    depends_on("sqlite@3.30:")
    # libcsv, for tables in CSV files, has no package of Spack: it is used where the site has it.
    depends_on("fmt@8:10")  # 11 moves fmt::join to another header
    depends_on("spdlog@1.10:")
    depends_on("xxhash@0.8:")

    with when("+torch"):
        # Not of the type "link": Spack's compiler wrapper would then find LibTorch's own copy of {fmt} before ours.
        with default_args(type=("build", "run")):
            depends_on("py-torch@2.1:")
            depends_on("py-torch ~cuda", when="~cuda")
            for arch in CudaPackage.cuda_arch_values:
                depends_on(f"py-torch +cuda cuda_arch={arch}", when=f"+cuda cuda_arch={arch}")
    depends_on("python@3.9:", type="run", when="+python")  # any, with any PyTorch: nothing is compiled against them
    # Not only of +torch: Spack would otherwise choose ~torch.
    conflicts("cuda_arch=none", when="+cuda", msg="name the GPUs that LibTorch is for, for example cuda_arch=90")
    # CUPTI and NCCL are compiled against and loaded when a program runs.
    depends_on("cuda@12.8:", when="+cuda")  # cudaLibraryLoadData
    depends_on("nccl@2.20:", when="+nccl")

    for kind, condition in (("test", "~tests"), (("build", "link", "test"), "+tests")):
        depends_on("googletest@1.12: +gmock", type=kind, when=condition)
        depends_on("benchmark@1.7:", type=kind, when=condition)

    conflicts("%gcc@:10", msg="C++20 is needed")
    conflicts("%clang@:13", msg="C++20 is needed")

    generator("ninja")

    def cmake_args(self):
        args = [
            self.define_from_variant("FARANDOLE_TORCH", "torch"),
            self.define("BUILD_TESTING", self.run_tests or self.spec.satisfies("+tests")),
            self.define("CMAKE_UNITY_BUILD", True),  # as the preset release
        ]
        # CMake would otherwise take the toolkit of the machine, of which Spack knows nothing. Empty is not sought.
        if self.spec.satisfies("~cuda"):
            args += [self.define("CUPTI_INCLUDE_DIR", ""), self.define("CUDA_INCLUDE_DIR", "")]
        if not self.spec.satisfies("+nccl"):
            args.append(self.define("NCCL_INCLUDE_DIR", ""))
        if self.spec.satisfies("+torch"):
            # .../site-packages/torch/share/cmake: tools/cmake/FindTorchCpu.cmake wants the folder two above.
            cmake_folder = self.spec["py-torch"].package.cmake_prefix_paths[0]
            args.append(self.define("TorchCpu_ROOT", os.path.dirname(os.path.dirname(cmake_folder))))
        return args

    def setup_run_environment(self, env):
        if self.spec.satisfies("+python"):
            env.prepend_path("PYTHONPATH", join_path(self.spec["farandole"].prefix.lib, "farandole", "python"))
        if self.spec.satisfies("+nccl"):
            env.prepend_path("LD_LIBRARY_PATH", self.spec["nccl"].prefix.lib)

    def check(self):
        """The first lane, as tools/test: tests whose result depends on the code alone. Many of them wait."""
        with working_dir(self.builder.build_directory):
            which("ctest")("--output-on-failure", "--label-exclude", "soak", f"-j{max(8, make_jobs)}")

    def farandole(self, *arguments):
        # Also in a container, where everything runs as root; as tests/CMakeLists.txt.
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return which(self.prefix.bin.farandole)(*arguments, output=str.split, error=str.split, extra_env=root)

    def test_version(self):
        """the installed program starts"""
        assert str(self.farandole("--version")).startswith("farandole ")

    def test_ranks(self):
        """two ranks sum over shared memory"""
        if self.spec.satisfies("~torch"):
            raise SkipTest("farandole bench needs +torch")
        program = self.prefix.bin.farandole
        out = self.farandole("run", "-n", "2", "--", program, "bench", "allreduce", "--to", "1M", "--format", "json")
        assert '"ours_us"' in out

    def test_training(self):
        """two ranks train, and the analyzer reads their run"""
        if self.spec.satisfies("~torch"):
            raise SkipTest("the trainer needs +torch")
        program = self.prefix.bin.farandole
        data = join_path(self.prefix.share, "farandole", "examples")  # any text
        self.farandole("run", "-n", "2", "--", program, "train", "--profile", "quickstart", "--data", data, "--run-dir",
                       "run", "--set", "steps=20")
        assert "efficiency" in self.farandole("analyze", "run")
