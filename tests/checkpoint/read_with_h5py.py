#!/usr/bin/python3
"""Compares FOLDER/a.h5, as h5py and h5dump read it, with FOLDER/expected.json and the raw bytes that the test put there."""
import json
import pathlib
import shutil
import subprocess
import sys

try:
    import h5py
    import numpy
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

NUMPY = {"float16": "float16", "bfloat16": "uint16", "float32": "float32", "float64": "float64", "int32": "int32",
         "int64": "int64", "uint8": "uint8", "bool": "bool", "int8": "int8", "int16": "int16"}


def main(folder):
    expected = json.loads((folder / "expected.json").read_text())
    with h5py.File(folder / "a.h5", "r") as file:
        for name, value in expected["attributes"].items():
            assert file.attrs[name] == value, (name, file.attrs[name], value)
        config = file.attrs["config"]
        assert json.loads(config) == json.loads(expected["config"]), config
        names = []
        file.visititems(lambda name, item: names.append("/" + name) if isinstance(item, h5py.Dataset) else None)
        assert sorted(names) == sorted(a["path"] for a in expected["arrays"]), names
        for array in expected["arrays"]:
            dataset = file[array["path"]]
            assert dataset.shape == tuple(array["shape"]), (array, dataset.shape)
            assert dataset.dtype == numpy.dtype(NUMPY[array["dtype"]]), (array, dataset.dtype)
            assert dataset.attrs["dtype"].decode() == array["dtype"], array
            raw = (folder / array["raw"]).read_bytes()
            assert numpy.asarray(dataset[()]).tobytes() == raw, array
    if shutil.which("h5dump"):
        text = subprocess.run(["h5dump", folder / "a.h5"], check=True, capture_output=True, text=True).stdout
        for array in expected["arrays"]:
            assert f'DATASET "{array["path"].rsplit("/", 1)[1]}"' in text, array


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
