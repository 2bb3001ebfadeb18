"""The folder in which an estimator keeps its tables and its runs, with the names of horovod.spark.common.store."""
import itertools
import os
import re
import time
from urllib.parse import unquote

__all__ = ["DBFSLocalStore", "FilesystemStore", "HDFSStore", "LocalStore", "Store"]


class Store:
    @staticmethod
    def create(prefix_path, *arguments, **named):
        return FilesystemStore(prefix_path, *arguments, **named)


class FilesystemStore(Store):
    """A folder that the driver and all ranks see under the same path. It has a run directory for each run, so
    `farandole runs list --store FOLDER` lists them."""

    def __init__(self, prefix_path, train_path=None, val_path=None, test_path=None, runs_path=None, save_runs=True,
                 storage_options=None, checkpoint_filename=None):
        if storage_options:
            raise ValueError(f"the store {prefix_path} has storage_options, which only a remote store can use; name a "
                             "folder of a file system that all nodes share")
        self.prefix_path = self.get_full_path(prefix_path)
        self._train, self._val, self._test = (
            self.get_full_path(path) if path else os.path.join(self.prefix_path, f"intermediate_{kind}_data")
            for path, kind in ((train_path, "train"), (val_path, "val"), (test_path, "test")))
        self._runs = self.get_full_path(runs_path) if runs_path else self.prefix_path
        self._save_runs = save_runs
        self._checkpoint = checkpoint_filename or "checkpoint"

    def get_full_path(self, path):
        path = os.fspath(path)
        scheme = re.match(r"([A-Za-z][\w+.-]*):/+", path)
        if scheme and scheme[1].lower() != "file":
            _refuse(path)
        return os.path.abspath("/" + unquote(path[scheme.end():]) if scheme else path)

    get_localized_path = get_full_path

    def get_train_data_path(self, idx=None):
        return self._train if idx is None else f"{self._train}.{idx}"

    def get_val_data_path(self, idx=None):
        return self._val if idx is None else f"{self._val}.{idx}"

    def get_test_data_path(self, idx=None):
        return self._test if idx is None else f"{self._test}.{idx}"

    def saving_runs(self):
        return self._save_runs

    def get_runs_path(self):
        return self._runs

    def get_run_path(self, run_id):
        if not re.fullmatch(r"[\w+=@-][\w.+=@-]*", run_id):
            raise ValueError(f"the run_id '{run_id}' cannot be the name of a folder; use letters, digits, '_', '-' and '.'")
        return os.path.join(self._runs, run_id)

    def get_checkpoint_filename(self):
        return self._checkpoint

    def get_checkpoint_path(self, run_id):
        return self.get_run_path(run_id) if self._save_runs else None

    def get_checkpoints(self, run_id, suffix=""):
        """Its newest checkpoint, which replaces the one before it."""
        file = os.path.join(self.get_run_path(run_id), self._checkpoint)
        return [file] if file.endswith(suffix) and os.path.exists(file) else []

    def get_logs_path(self, run_id):
        return os.path.join(self.get_run_path(run_id), self.get_logs_subdir()) if self._save_runs else None

    def get_logs_subdir(self):
        return "logs"

    def exists(self, path):
        return os.path.exists(self.get_full_path(path))

    def read(self, path):
        with open(self.get_full_path(path), "rb") as file:
            return file.read()

    def write_text(self, path, text):
        with open(self.get_full_path(path), "w") as file:
            file.write(text)

    def new_run(self):
        """Makes the folder of a run without an id. Returns the id."""
        name = f"pytorch_{int(time.time())}"
        for number in itertools.count(1):
            run_id = name if number == 1 else f"{name}-{number}"
            if _make(self.get_run_path(run_id)):
                return run_id

    def new_table(self):
        """Makes the folder of a table. Returns its path."""
        return next(path for path in map(self.get_train_data_path, itertools.count(1)) if _make(path))


class LocalStore(FilesystemStore):
    """As FilesystemStore, which it became in Horovod, too."""


def _refuse(prefix_path, *_, **__):
    raise ValueError(f"the store {prefix_path} is remote, and ranks read and write files only; name a folder of a file "
                     "system that all nodes share")


HDFSStore = DBFSLocalStore = _refuse


def _make(folder):
    """Whether this call has made the folder: other jobs may use the store at the same time."""
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    try:
        os.mkdir(folder)
    except FileExistsError:
        return False
    return True
