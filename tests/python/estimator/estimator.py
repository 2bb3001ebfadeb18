"""The estimator on ranks of `farandole run`, against one process. estimator.sh starts the parts:

cases FOLDER: on each rank; rank 0 is the driver, too, so that one start of the ranks serves all.
driver FOLDER: a driver whose ranks are started by the estimator.
"""
import json
import os
import signal
import sys
import time
import warnings

import cloudpickle
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet
import torch
from torch import nn
from torch.nn import functional as F

from farandole import runners
from farandole.estimator import Callback, EarlyStopping, HDFSStore, LearningRate, Store, TorchEstimator
from farandole.estimator._rows import Share, Table, dataset_of

torch.set_num_threads(1)
FEATURES = 5


class Here(runners.Backend):
    """Calls functions on the ranks of this job: rank 0 calls run(), the others serve()."""

    def __init__(self, hvd):
        self.hvd = hvd

    def run(self, fn, args=(), kwargs=None, env=None):
        fn, args = cloudpickle.loads(self.hvd.broadcast_object(cloudpickle.dumps((fn, args)), 0))
        return [fn(*args)]

    def serve(self):
        while (call := self.hvd.broadcast_object(None, 0)) is not None:
            fn, args = cloudpickle.loads(call)
            fn(*args)

    def num_processes(self):
        return self.hvd.size()


def table(rows, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, FEATURES)).astype(np.float32)
    y = (np.tanh(x @ np.arange(FEATURES)) + 1).astype(np.float32)
    return pandas.DataFrame({"x": list(x), "more": rng.normal(size=rows), "y": y.astype(np.float64),
                             "weight": rng.uniform(0.5, 2, rows), "id": np.arange(rows),
                             "held": (np.arange(rows) % 5 == 3).astype(np.int64)})


def dense(seed=0, inputs=FEATURES):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 1))


class Two(nn.Module):
    """Two inputs and two outputs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second, self.third = nn.Linear(FEATURES, 4), nn.Linear(1, 4), nn.Linear(8, 2)

    def forward(self, x, more):
        both = torch.tanh(torch.cat([self.first(x), self.second(more)], dim=1))
        out = self.third(both)
        return out[:, :1], out[:, 1:]


def batches(rows, size, batch, passes=1):
    """The rows of each step over all ranks, if they are not shuffled. A rank's last row is never alone in a batch."""
    ranks = []
    for rank in range(size):
        own = np.arange(rows * rank // size, rows * (rank + 1) // size)
        parts = [own[begin:begin + batch] for begin in range(0, len(own), batch)]
        if len(parts) > 1 and len(parts[-1]) == 1:
            parts[-2:] = [np.concatenate(parts[-2:])]
        ranks.append(parts)
    for first in range(0, max(map(len, ranks)), passes):
        yield np.concatenate([part for parts in ranks for part in parts[first:first + passes]])


def close(model, other, limit=1e-6):
    for (name, one), two in zip(model.state_dict().items(), other.state_dict().values()):
        difference = (one.double() - two.double()).abs().max().item()
        assert difference <= limit, f"{name} differs by {difference}"


class Cases:
    def __init__(self, backend, folder):
        self.backend, self.size, self.folder = backend, backend.num_processes(), folder
        self.store = Store.create(os.path.join(folder, "store"))

    def estimator(self, model=None, rate=0.05, **parameters):
        model = model or dense()
        if "optimizer" not in parameters:
            parameters["optimizer"] = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
        defaults = dict(backend=self.backend, store=self.store, model=model, verbose=0, batch_size=8, epochs=3,
                        loss=F.mse_loss, feature_cols=["x"], label_cols=["y"], random_seed=5)
        return TorchEstimator(**{**defaults, **parameters})

    # --- Against one process

    def equals_one_process(self):
        frame = table(103)
        model = self.estimator(shuffle=False).fit(frame)
        alone = dense()
        optimizer = torch.optim.SGD(alone.parameters(), lr=0.05 * self.size, momentum=0.9)
        x, y = torch.tensor(np.stack(frame.x)), torch.tensor(frame.y.to_numpy(), dtype=torch.float32)[:, None]
        losses = []
        for _ in range(3):
            losses.append(0)
            for rows in batches(103, self.size, 8):
                optimizer.zero_grad()
                loss = F.mse_loss(alone(x[rows]), y[rows])
                loss.backward()
                optimizer.step()
                losses[-1] += loss.item() * len(rows) / 103
        close(model.getModel(), alone)
        measured = [entry["train"]["loss"] for entry in model.getHistory()]
        assert np.allclose(measured, losses, rtol=1e-5), (measured, losses)
        assert abs(model.getOptimizer().param_groups[0]["lr"] - 0.05) < 1e-12

    def equals_with_weights_and_passes(self):
        """Two inputs and labels, weights of losses and of rows, metrics, three backward passes in a step."""
        frame, mine = table(101, seed=2), Two()
        mean = lambda output, label: (output - label).abs().mean()
        absolute = lambda output, label, reduction: F.l1_loss(output, label, reduction=reduction)
        model = self.estimator(
            mine, shuffle=False, optimizer=torch.optim.Adam(mine.parameters(), lr=0.01), feature_cols=["x", "more"],
            label_cols=["y", "more"], loss=[F.mse_loss, absolute], loss_weights=[0.7, 0.4], sample_weight_col="weight",
            input_shapes=[[-1, FEATURES], [-1, 1]], metrics=[[mean], [mean, F.mse_loss]], backward_passes_per_step=3,
            epochs=2).fit(frame)
        alone = Two()
        optimizer = torch.optim.Adam(alone.parameters(), lr=0.01 * self.size)
        x, more, y, weight = (torch.tensor(np.stack(frame[name]).astype(np.float32)) for name in ("x", "more", "y", "weight"))
        more, y = more[:, None], y[:, None]
        for _ in range(2):
            totals = torch.zeros(3, dtype=torch.float64)
            for rows in batches(101, self.size, 8, 3):
                optimizer.zero_grad()
                one, two = alone(x[rows], more[rows])
                squares, distances = (one - y[rows]).square()[:, 0], (two - more[rows]).abs()[:, 0]
                ((squares * weight[rows]).mean() * 0.7 + (distances * weight[rows]).mean() * 0.4).backward()
                optimizer.step()
                totals += torch.stack([(one - y[rows]).abs().sum(), distances.sum(), (two - more[rows]).square().sum()]
                                      ).detach().double()
        close(model.getModel(), alone)
        groups = model.getHistory()[-1]["train"]["all_metrics"]
        assert [list(group) for group in groups] == [["group_0_y", "group_0_more"], ["group_1_y", "group_1_more"]], groups
        measured = [groups[0]["group_0_y"], groups[0]["group_0_more"], groups[1]["group_1_more"]]
        assert np.allclose(measured, totals / 101, rtol=1e-4), (measured, totals / 101)

    def equals_with_own_step(self):
        """loss_constructors and train_minibatch_fn, and gradients in float16."""
        from farandole.torch import Compression

        def step(model, optimizer, transform_outputs, loss_fn, inputs, labels, sample_weights):
            optimizer.zero_grad()
            outputs, labels = transform_outputs(model(*inputs), labels)
            loss = loss_fn(outputs, labels, sample_weights)
            loss.backward()
            optimizer.step()
            return outputs, loss

        usual = self.estimator().fit(table(50))
        own = self.estimator(loss=None, loss_constructors=[lambda **_: nn.MSELoss()], train_minibatch_fn=step)
        own = own.fit(table(50))
        close(usual.getModel(), own.getModel())
        assert np.allclose(usual.getHistory()[-1]["train"]["loss"], own.getHistory()[-1]["train"]["loss"], rtol=1e-5)
        half = self.estimator(gradient_compression=Compression.fp16).fit(table(50))
        close(usual.getModel(), half.getModel(), 1e-2)

    # --- Rows

    def rows_come_once(self):
        for column, validation, held in ((None, 0.2, 20), ("held", "held", 20)):
            seen = os.path.join(self.folder, "seen")
            os.makedirs(seen, exist_ok=True)

            def note(frame, seen=seen):
                import farandole.torch
                name = f"{farandole.torch.rank()}-{'train' if torch.is_grad_enabled() else 'validation'}"
                with open(os.path.join(seen, name), "a") as file:
                    print(*frame.id.astype(int), file=file)
                frame["x"] = frame["x"] * 2
                return frame

            model = self.estimator(validation=validation, transformation_fn=note, loss=[F.mse_loss, lambda o, _: o.sum() * 0],
                                   model=Twice(), feature_cols=["x"], label_cols=["y", "id"], shuffle_buffer_size=24,
                                   inmemory_cache_all=column is None).fit(table(103))
            lines = {}
            for name in os.listdir(seen):
                with open(os.path.join(seen, name)) as file:
                    lines.setdefault(name.split("-")[1], []).append([list(map(int, line.split())) for line in file])
                os.remove(os.path.join(seen, name))
            trained, validated = (sorted(row for rank in lines[kind] for line in rank for row in line)
                                  for kind in ("train", "validation"))
            assert len(set(validated)) == held and len(validated) == 3 * held, validated
            assert trained == sorted(3 * [row for row in range(103) if row not in validated]), trained
            if column:
                assert set(validated) == {row for row in range(103) if row % 5 == 3}
            assert [entry["validation"]["loss"] > 0 for entry in model.getHistory()] == [True] * 3
            steps = {len(rank) for rank in lines["train"]}
            assert max(steps) - min(steps) <= 3, steps  # A rank without rows in the last batch has none to note.

    def shares(self):
        """For many numbers of ranks, windows and batches, without ranks."""
        path = os.path.join(self.folder, "shares")
        os.makedirs(path, exist_ok=True)
        rng = np.random.default_rng(7)
        for number, rows in enumerate((17, 1, 40)):
            pyarrow.parquet.write_table(pa.table({"id": np.arange(rows) + 100 * number}),
                                        os.path.join(path, f"{number}.parquet"), row_group_size=7)
        everything = sorted(row + 100 * number for number, rows in enumerate((17, 1, 40)) for row in range(rows))
        for validation in (None, 0.3):
            rows = Table(path, ["id"], validation, 3)
            for case in range(40):
                size, batch, window = (int(rng.integers(1, limit)) for limit in (6, 12, 40))
                seen, orders = [], []
                for validating in (False, True):
                    shares = [Share(rows, validating, rank, size, batch, seed=4, epoch=case, window=window)
                              for rank in range(size)]
                    assert len({len(share) for share in shares}) == 1
                    for number in range(len(shares[0])):
                        parts = [share[number] for share in shares]
                        got = [len(part["id"]) if part else 0 for part in parts]
                        assert sum(got) == shares[0].rows_of(number) and max(got) <= batch + 1
                        assert 1 not in got or batch == 1 or number == 0, (got, size, batch)
                        orders += [value for part in parts if part for value in part["id"].tolist()]
                    assert all(share[len(shares[0])] is None for share in shares)
                seen = sorted(map(int, orders))
                assert seen == everything, (size, batch, window, seen)
            fewer = Share(rows, False, 0, 2, 8, seed=4, batches=2)
            assert (len(fewer), fewer.rows) == (2, 32)
            more = [Share(rows, False, rank, 2, 8, seed=4, batches=9) for rank in range(2)]
            values = [value for share in more for number in range(9) for value in share[number]["id"].tolist()]
            counts = np.unique(values, return_counts=True)[1]
            assert len(values) == 144 and counts.max() - counts.min() <= 1, counts
        # Columns in the names of folders, as Spark's partitionBy() writes them.
        parted = os.path.join(self.folder, "parted")
        for day in "2024-01-01", "a b":
            for number, label in enumerate(("0", "1", "__HIVE_DEFAULT_PARTITION__")):
                place = os.path.join(parted, f"day={day.replace(' ', '%20')}", f"rate={number / 2}", f"label={label}")
                os.makedirs(place)
                pyarrow.parquet.write_table(pa.table({"id": np.arange(3) + 10 * number}), os.path.join(place, "0.parquet"))
        with open(os.path.join(parted, "_SUCCESS"), "w"):
            pass
        found = dataset_of(parted)
        assert found.schema.equals(pa.schema([("id", pa.int64()), ("day", pa.string()), ("rate", pa.float64()),
                                              ("label", pa.int64())])), found.schema
        assert set(zip(*found.to_table(columns=["day", "label"]).to_pydict().values())) == {
            (day, label) for day in ("2024-01-01", "a b") for label in (0, 1, None)}
        rows = Table(os.path.join(parted, "day=a%20b"), ["id", "rate"], None, 3)
        assert [rows.read(number, False)["rate"].tolist() for number in range(3)] == [[0] * 3, [0.5] * 3, [1] * 3]
        try:
            Table(parted, ["id"], "label", 3)
        except ValueError as error:
            assert "column 'label' has rows without a value" in str(error)
        else:
            raise AssertionError("a folder without a label was not refused")
        # A column that the files have, too, is theirs.
        assert dataset_of(os.path.join(parted, "day=a%20b/rate=0.0/label=0/0.parquet")).schema.names == ["id"]
        os.makedirs(os.path.join(self.folder, "both", "id=7"))
        pyarrow.parquet.write_table(pa.table({"id": [1.5]}), os.path.join(self.folder, "both", "id=7", "0.parquet"))
        assert dataset_of(os.path.join(self.folder, "both")).to_table().to_pydict() == {"id": [1.5]}
        other = os.path.join(self.folder, "uneven")
        os.makedirs(other, exist_ok=True)
        for number, width in enumerate((2, 3)):
            pyarrow.parquet.write_table(pa.table({"id": [[1.] * width]}), os.path.join(other, f"{number}.parquet"))
        uneven = Table(other, ["id"], None, 3)
        try:
            [uneven.read(number, False) for number in range(2)]
        except ValueError as error:
            assert "different lengths" in str(error)
        else:
            raise AssertionError("lists of different lengths in two files were not refused")

    # --- Callbacks, limits, transform()

    def callbacks(self):
        stopped = self.estimator(rate=0.0, epochs=9, callbacks=[EarlyStopping(patience=2)], validation="held").fit(table(40))
        assert len(stopped.getHistory()) == 3, stopped.getHistory()
        run_id = f"rates-{self.size}"
        self.estimator(callbacks=[LearningRate(lambda epoch: 0.5 ** epoch)], run_id=run_id).fit(table(40))
        with open(os.path.join(self.store.get_run_path(run_id), "fit.json")) as file:
            record = json.load(file)
        rates = [epoch["lr"] for epoch in record["history"]]
        assert np.allclose(rates, [0.05 * self.size * 0.5 ** epoch for epoch in range(3)]), rates
        assert record["finished"] and [epoch["step"] for epoch in record["history"]][2] == 3 * -(-40 // (8 * self.size))
        # What has ended does not begin again, and more epochs continue it.
        again = self.estimator(run_id=run_id, callbacks=[Fails()]).fit(table(40))
        assert len(again.getHistory()) == 3
        more = self.estimator(run_id=run_id, epochs=4).fit(table(40))
        assert len(more.getHistory()) == 4 and more.getHistory()[:3] == again.getHistory()
        self.estimator(loss=lambda output, label: output.sum() * float("nan"), epochs=1, run_id="nan").fit(table(20))
        limited = self.estimator(train_steps_per_epoch=2, validation=0.5, validation_steps_per_epoch=1, val_batch_size=4,
                                 metrics=[[lambda output, label: len(label)]], epochs=1).fit(table(80))
        assert limited.getHistory()[0]["train"]["all_metrics"] == [{"group_0_y": 8}], limited.getHistory()
        assert limited.getHistory()[0]["validation"]["all_metrics"] == [{"group_0_y": 4}], limited.getHistory()

    def transforms(self):
        frame = table(300)
        model = self.estimator(epochs=1).fit(frame)
        with torch.no_grad():
            expected = model.getModel()(torch.tensor(np.stack(frame.x))).numpy()[:, 0]
        out = model.transform(frame)
        assert list(out.columns) == [*frame.columns, "y__output"] and np.allclose(out["y__output"], expected, atol=1e-6)
        assert list(frame.columns)[-1] == "held"
        assert model.transform(frame[:0])["y__output"].shape == (0,)
        model.setOutputCols(["guess"])
        arrow = model.transform(pa.Table.from_pandas(frame))
        assert isinstance(arrow, pa.Table) and np.allclose(arrow["guess"].to_numpy(), expected, atol=1e-6)
        path = os.path.join(self.folder, "parts")
        os.makedirs(path, exist_ok=True)
        for number in range(3):
            pyarrow.parquet.write_table(pa.Table.from_pandas(frame[100 * number:100 * number + 100]),
                                        os.path.join(path, f"{number}.parquet"))
        os.makedirs(os.path.join(path, "part=2"))
        os.rename(os.path.join(path, "2.parquet"), os.path.join(path, "part=2", "2.parquet"))
        written = pyarrow.parquet.read_table(model.transform(path))
        assert np.allclose(written["guess"].to_numpy(), expected, atol=1e-6)
        assert written["part"].to_pylist() == [None] * 200 + [2] * 100
        of_path = self.estimator(epochs=1).fit(path)
        of_arrow = self.estimator(epochs=1).fit(pa.Table.from_pandas(frame))
        assert len(of_path.getHistory()) == len(of_arrow.getHistory()) == 1
        # A vector for each row, and whole labels.
        wide = nn.Sequential(nn.Linear(FEATURES, 2), nn.LogSoftmax(1))
        wide = self.estimator(wide, epochs=1, label_cols=["held"], loss=lambda output, label: F.nll_loss(output, label.long()),
                              optimizer=torch.optim.SGD(wide.parameters(), lr=0.1)).fit(frame)
        assert np.stack(wide.transform(frame)["held__output"]).shape == (300, 2)
        assert wide.transform(pa.Table.from_pandas(frame))["held__output"].type == pa.list_(pa.float64())
        whole = self.estimator(epochs=1, label_cols=["id"]).fit(frame)
        assert whole.transform(frame)["id__output"].dtype == np.int64
        for name in "polars", "dask.dataframe":
            try:
                module = __import__(name, fromlist=["from_pandas"])
            except ImportError:
                print(f"not tried: {name} is not installed here", file=sys.stderr)
                continue
            if "dask" in name:
                import dask
                dask.config.set({"dataframe.convert-string": False})  # It would make texts of arrays.
            other = module.from_pandas(frame, **({"npartitions": 2} if "dask" in name else {}))
            result = self.estimator(epochs=1).fit(other).setOutputCols(["guess"]).transform(other)
            assert type(result) is type(other)
            assert len(result.compute() if hasattr(result, "compute") else result) == 300

    # --- What is refused

    def refusals(self):
        frame = table(40)
        empty = nn.Flatten()
        given = torch.optim.SGD(dense().parameters(), lr=0.1)
        ragged = pandas.DataFrame({"x": [[1., 2.], [1.]] * 50, "y": [0., 1.] * 50})
        gap = pandas.DataFrame({"x": [[1.] * 5, None] * 50, "y": [0., 1.] * 50})
        for wanted, data, parameters in (
                ("no column 'z'; it has 'x'", frame, {"feature_cols": ["z"]}),
                ("label_cols: the table has no column", frame, {"label_cols": ["z"]}),
                ("sample_weight_col: ", frame, {"sample_weight_col": "z"}),
                ("validation: the table", frame, {"validation": "z"}),
                ("does not fit the 5 numbers", frame, {"input_shapes": [[-1, 4]]}),
                ("does not fit the 5 numbers", frame, {"input_shapes": [[5]]}),
                ("input_shapes has 2 entries for 1 columns", frame, {"input_shapes": [[-1, 5], [-1, 5]]}),
                ("no rows", frame[:0], {}),
                ("no rows for the training", frame[frame.held > 0], {"validation": "held"}),
                ("no parameters to train", frame, {"model": empty, "optimizer": given}),
                ("is not of this model", frame, {"model": nn.Linear(5, 1)}),
                ("lists of different lengths", ragged, {}),
                ("rows without a value", gap, {}),
                ("is no table", [1, 2], {}),
                ("no Parquet files at", "/nowhere", {}),
                ("store is missing", frame, {"store": None}),
                ("either loss or loss_constructors", frame, {"loss": None}),
                ("batch_size is 0", frame, {"batch_size": 0}),
                ("a fraction from 0", frame, {"validation": 1.5}),
                ('At most one of parameters "backend"', frame, {"num_proc": 2}),
                ("function of model, optimizer, transform_outputs", frame, {"train_minibatch_fn": lambda model: None}),
                ("losses with a parameter reduction", frame, {"sample_weight_col": "weight", "loss": nn.MSELoss()}),
                ("loss_weights has 2 entries", frame, {"loss_weights": [1, 2]}),
                ("cannot be the name of a folder", frame, {"run_id": "../x"}),
                ("is of another model", frame, {"run_id": f"rates-{self.size}", "model": nn.Linear(5, 1)})):
            if "model" in parameters and "optimizer" not in parameters and "run_id" not in parameters:
                parameters["optimizer"] = given
            try:
                self.estimator(**parameters).fit(data)
            except (ValueError, TypeError) as error:
                assert wanted in str(error) and "\n" not in str(error), error
            else:
                raise AssertionError(f"'{wanted}' was not said")
        for remote, make in (("hdfs:///user/x", Store.create), ("s3://bucket/x", Store.create), ("dbfs:/x", Store.create),
                             ("/user/x", HDFSStore)):
            try:
                make(remote)
            except ValueError as error:
                assert "file system that all nodes share" in str(error) and "\n" not in str(error), error
            else:
                raise AssertionError(f"{remote} was not refused")
        assert Store.create("file:///tmp/a%20b").get_run_path("r") == "/tmp/a b/r"
        try:
            self.estimator(epoch=3)
        except TypeError as error:
            assert "no parameter 'epoch'" in str(error)
        left = [name for name in os.listdir(self.store.prefix_path) if name.startswith("intermediate")]
        assert not left, left

    def parameters(self):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(2):
                estimator = self.estimator(reader_pool_type="process").setTrainReaderNumWorker(3)
        assert len(said) == 2 and "no effect here" in str(said[0].message), [str(one.message) for one in said]
        names = [name for name in dir(TorchEstimator) if name.startswith("set")]
        for name in names:
            assert hasattr(TorchEstimator, "get" + name[3:]) or name == "setParams", name
        assert len(names) >= 40
        assert estimator.setEpochs(7).getEpochs() == 7 and estimator.getBatchSize() == 8
        assert estimator.setBatchSize(None).getBatchSize() == 32
        assert estimator.copy({estimator.getParam("epochs"): 2}).getEpochs() == 2 and estimator.getEpochs() == 7
        assert estimator.getShufflingBufferSize() is None and estimator.getInMemoryCacheAll() is False


class Twice(nn.Module):
    """One output for two labels of which the second is only a number of the row."""

    def __init__(self):
        super().__init__()
        self.net = dense()

    def forward(self, x):
        return self.net(x), self.net(x)


class Fails(Callback):
    def on_epoch_begin(self, epoch, training):
        raise AssertionError("a run that has ended must not begin again")


def cases(folder):
    import farandole.torch as hvd
    hvd.init()
    backend = Here(hvd)
    if hvd.rank() != 0:
        return backend.serve()
    tests = Cases(backend, folder)
    for name in [name for name in vars(Cases) if name[0] != "_" and name != "estimator"]:
        start = time.time()
        getattr(tests, name)()
        print(f"{name}: {time.time() - start:.1f} s", file=sys.stderr)
    hvd.broadcast_object(None, 0)
    print("equal")


# --- A driver


class Noisy(nn.Module):
    """Its training depends on random numbers and on running statistics."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.layers = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))

    def forward(self, x):
        return self.layers(x)


class Kill(Callback):
    """Kills rank 1 in the epoch 2, once."""

    def __init__(self, marker):
        self.marker = marker

    def on_epoch_end(self, epoch, training):
        if epoch == 2 and training.rank == 1 and not os.path.exists(self.marker):
            open(self.marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)


def driver(folder):
    from farandole import RankError
    marker, results = os.path.join(folder, "killed"), []
    for run_id, error in (("killed", RankError), ("killed", None), ("undisturbed", None)):
        model = Noisy()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        estimator = TorchEstimator(
            num_proc=2, store=Store.create(os.path.join(folder, "store")), model=model, optimizer=optimizer,
            loss=F.mse_loss, feature_cols=["x"], label_cols=["y"], batch_size=8, epochs=4, validation=0.2, random_seed=3,
            callbacks=[Kill(marker), LearningRate(lambda epoch: 1 / (1 + epoch))], run_id=run_id)
        try:
            fitted = estimator.fit(table(101))
        except RankError as raised:
            assert error and raised.rank == 1, raised
            continue
        assert not error, "rank 1 was not killed"
        close(model, Noisy(), 0)
        results.append(fitted)
    one, two = results
    assert one.getHistory() == two.getHistory() and len(one.getHistory()) == 4, (one.getHistory(), two.getHistory())
    close(one.getModel(), two.getModel(), 0)
    for left, right in zip(one.getOptimizer().state.values(), two.getOptimizer().state.values()):
        assert torch.equal(left["exp_avg"], right["exp_avg"])
    print("equal")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
