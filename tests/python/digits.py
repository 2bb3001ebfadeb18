"""FOLDER: writes 512 images for training and 500 for tests as MNIST's files, with a bright square for each digit."""
import gzip
import os
import struct
import sys

import numpy as np

random = np.random.default_rng(1)
os.makedirs(sys.argv[1], exist_ok=True)
for name, count in ("train", 512), ("t10k", 500):
    labels = random.integers(0, 10, count, dtype="u1")
    images = random.integers(0, 60, (count, 28, 28), dtype="u1")
    for image, digit in zip(images, labels):
        row, column = 2 + 13 * (digit // 5), 1 + 5 * (digit % 5)
        image[row:row + 11, column:column + 5] += 150
    for kind, values in ("images-idx3", images), ("labels-idx1", labels):
        with gzip.open(os.path.join(sys.argv[1], f"{name}-{kind}-ubyte.gz"), "wb", 1) as file:
            file.write(struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes())
