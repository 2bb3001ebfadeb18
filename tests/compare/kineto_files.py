"""Writes traces as PyTorch's profiler writes them for a data-parallel training on GPUs: one file a rank.

The events and their arguments are those of real files (operators with shapes, launches, flows, kernels, copies,
annotations, NCCL kernels on a stream of their own); times are random, to the nanosecond, of a fixed seed.
"""
import json
import random

OPERATORS = ("aten::linear", "aten::addmm", "aten::relu", "aten::native_layer_norm", "aten::scaled_dot_product_attention")
KERNELS = ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int)",
           "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
           "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float, float const*)")
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


class RankFile:
    """Events of one rank; times are microseconds, and are written with three decimals."""

    def __init__(self, stream, rank, world_size):
        self.stream, self.rank, self.pid, self.written, self.id = stream, rank, 4000 + rank, 0, 0
        head = {"schemaVersion": 1, "deviceProperties": [{"id": rank, "name": "NVIDIA H100", "numSms": 132}],
                "record_shapes": 1,
                "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world_size, "pg_count": 1,
                                    "nccl_version": "2.21.5"}}
        self.put(json.dumps(head)[:-1] + ',\n  "displayTimeUnit": "ms",\n  "traceEvents": [\n  ' +
                 json.dumps({"name": "process_name", "ph": "M", "ts": 0, "pid": self.pid, "tid": 0,
                             "args": {"name": "python"}}))

    def put(self, text):
        self.stream.write(text)
        self.written += len(text)

    def span(self, category, name, pid, tid, start, duration, args):
        self.put(f',\n  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
                 f'    "ts": {start:.3f}, "dur": {duration:.3f},\n    "args": {{\n      {args}\n    }}\n  }}')

    def host(self, category, name, start, duration, args=""):
        self.id += 1
        self.span(category, name, self.pid, self.pid, start, duration,
                  f'"External id": {self.id},"Record function id": 0{args}, "Ev Idx": {self.id}')

    def flow(self, kind, pid, tid, time):
        end = ', "bp": "e"' if kind == "f" else ""
        self.put(f',\n  {{\n    "ph": "{kind}", "id": {self.id}, "pid": {pid}, "tid": {tid}, "ts": {time:.3f},\n'
                 f'    "cat": "ac2g", "name": "ac2g"{end}\n  }}')

    def kernel(self, name, stream, launched, start, duration, args="", category="kernel"):
        self.id += 1
        self.span("cuda_runtime", "cudaLaunchKernel", self.pid, self.pid, launched, 4,
                  f'"External id": {self.id}, "cbid": 211, "correlation": {self.id}')
        self.flow("s", self.pid, self.pid, launched)
        self.span(category, name, self.rank, stream, start, duration,
                  f'"External id": {self.id}, "queued": 0, "device": {self.rank}, "context": 1,\n      "stream": {stream}, '
                  f'"correlation": {self.id},\n      "registers per thread": 40, "shared memory": 400,\n      '
                  f'"blocks per SM": 4.740741, "warps per SM": 75.851852,\n      "grid": [512, 1, 1], "block": [512, 1, 1],\n'
                  f'      "est. achieved occupancy %": 61{args}')
        self.flow("f", self.rank, stream, start)

    def finish(self):
        self.put('\n  ],\n  "traceName": "trace.json"\n}\n')


def write_step(file, chance, number, start):
    """Operators that launch kernels, and five all-reduces behind them that backward partly hides; returns its end."""
    operators = 120
    host, device, network = start + 400, start + 600, start + 600
    file.host("user_annotation", f"ProfilerStep#{number}", start, 30000)
    file.host("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", start + 5, 300)
    for i in range(operators):
        took = 20 + 60 * chance.random()
        shape = f', "Concrete Inputs": ["", "", ""], "Input type": ["float", "float", "float"], ' \
                f'"Input Strides": [[4096, 1], [1, 4096], [1]], "Input Dims": [[{i + 32}, 4096], [4096, 4096], [4096]]'
        file.host("cpu_op", OPERATORS[i % len(OPERATORS)], host, took, shape)
        file.host("cpu_op", OPERATORS[(i + 1) % len(OPERATORS)], host + 1, took - 2, shape)
        device = max(device, host + took / 2)
        length = 60 + 240 * chance.random()
        file.kernel(KERNELS[i % len(KERNELS)], 7, host + took / 3, device, length)
        device += length + 3 * chance.random()
        if i >= operators // 2 and i % (operators // 10) == 0:
            network = max(network, device)
            length = 1500 + 1500 * chance.random()
            file.kernel(NCCL, 20, host + took / 2, network, length,
                        ', "Collective name": "allreduce", "In msg nelems": 6553600, "Out msg nelems": 6553600, '
                        '"Group size": 2, "dtype": "Float", "In split size": "[]", "Out split size": "[]", '
                        '"Process Group Name": "0", "Process Group Description": "default_pg", '
                        '"Process Group Ranks": "[0, 1]"')
            network += length
        host += took + 2
    file.kernel("Memcpy DtoH (Device -> Pinned)", 7, host, max(device, network), 2.5, category="gpu_memcpy")
    return max(start + 30000, device, network)


def write_files(folder, ranks, megabytes):
    """folder/rank_N.json of each rank, until each holds so many megabytes."""
    for rank in range(ranks):
        chance = random.Random(rank)
        with open(folder / f"rank_{rank}.json", "w", buffering=1 << 20) as stream:
            file = RankFile(stream, rank, ranks)
            time, number = 1e6, 3
            while file.written < megabytes * 1e6:
                time = write_step(file, chance, number, time) + 50
                number += 1
            file.finish()
