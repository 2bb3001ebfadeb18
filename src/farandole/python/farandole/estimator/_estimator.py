"""TorchEstimator and TorchModel: parameters, checks, and the start of the ranks."""
import copy
import inspect
import os
import secrets
import shutil

import numpy as np
import pyarrow as pa
import torch

from farandole import runners
from farandole.estimator import _tables, _train
from farandole.estimator._ml import Estimator, Model
from farandole.estimator._params import EstimatorParams, ModelParams
from farandole.estimator._rows import Table, flat, numbers


class TorchEstimator(EstimatorParams, Estimator):
    """Trains a copy of a torch model on the rows of a table: see farandole.estimator._params for the parameters."""

    def __init__(self, **parameters):
        super().__init__()
        self.setParams(**parameters)

    def fit_on_parquet(self, params=None, dataset_idx=None):
        """Trains on Parquet files that are already in the store."""
        return self.fit(self._store().get_train_data_path(dataset_idx), params)

    def _store(self):
        store = self.getStore()
        if store is None:
            raise ValueError("store is missing; give for example store=Store.create('FOLDER')")
        return store

    def _fit(self, table):
        self._check()
        store, backend = self._store(), self._ranks()
        validation, weights = self.getValidation(), [self.getSampleWeightCol()] if self.getSampleWeightCol() else []
        columns = list(dict.fromkeys([*self.getFeatureCols(), *self.getLabelCols(), *weights]))
        _tables.check_columns(table, self.getFeatureCols(), "feature_cols")
        _tables.check_columns(table, self.getLabelCols(), "label_cols")
        _tables.check_columns(table, weights, "sample_weight_col")
        chosen = [validation] if isinstance(validation, str) else []
        _tables.check_columns(table, chosen, "validation")
        run_id, state = self.getRunId(), None
        if run_id and (checkpoints := store.get_checkpoints(run_id)):
            state = torch.load(checkpoints[0], map_location="cpu", weights_only=True)
            self._check_state(state, run_id)
        seed = state["seed"] if state else self.getRandomSeed()
        written = None if isinstance(table, (str, os.PathLike)) else store.new_table()
        try:
            path = _tables.write(table, [*columns, *(name for name in chosen if name not in columns)], written,
                                 backend.num_processes() * self.getPartitionsPerProcess())
            rows = Table(path, columns, validation, secrets.randbits(31) if seed is None else seed)
            types = self._check_rows(rows)
            run_id = run_id or store.new_run()
            folder = store.get_run_path(run_id)
            if state and state["finished"] and state["epochs"] >= self.getEpochs():
                return self._model(state["history"], state["model"], _unscaled(state), run_id, types, folder)
            os.makedirs(folder, exist_ok=True)
            record = state["record"] if state else {"table": path if written is None else _tables.kind_of(table),
                                                    "options": self._described(), "history": []}
            record["finished"] = False
            checkpoint = os.path.join(folder, store.get_checkpoint_filename()) if store.saving_runs() else ""
            if checkpoint:
                _train.write_record(folder, record)
            job = _train.Job(rows, self.getModel(), self._bound_optimizer(), rows.seed, folder, checkpoint, state,
                             self.getLabelCols(), self.getFeatureCols(), self._options(), record)
            history, model, optimizer = self._run(backend, job)
        finally:
            if written:
                shutil.rmtree(written, ignore_errors=True)
        return self._model(history, model, optimizer, run_id, types, folder)

    # --- Checks

    def _check(self):
        for name in "model", "optimizer", "feature_cols", "label_cols":
            if self.getOrDefault(name) in (None, []):
                raise ValueError(f"{name} is missing; set it before fit()")
        for name, least in (("batch_size", 1), ("val_batch_size", 1), ("epochs", 1), ("backward_passes_per_step", 1),
                            ("partitions_per_process", 1), ("num_proc", 1), ("train_steps_per_epoch", 1),
                            ("validation_steps_per_epoch", 1), ("shuffle_buffer_size", 0), ("random_seed", 0)):
            value = self.getOrDefault(name)
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}; it must be at least {least}")
        model, labels = self.getModel(), self.getLabelCols()
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise ValueError(f"the model {type(model).__name__} has no parameters to train")
        if bool(self.getLoss()) == bool(self.getLossConstructors()):
            raise ValueError("either loss or loss_constructors is needed: a function of output and label, or a list with one "
                             "for each label")
        for name, wanted in (("loss", labels), ("loss_constructors", labels), ("loss_weights", labels),
                             ("label_shapes", labels), ("input_shapes", self.getFeatureCols())):
            value = self.getOrDefault(name)
            if isinstance(value, (list, tuple)) and len(value) not in {len(wanted), name.startswith("loss") or len(wanted)}:
                raise ValueError(f"{name} has {len(value)} entries for {len(wanted)} columns; give one for each")
        if self.getSampleWeightCol():
            for loss in self.getLoss() if isinstance(self.getLoss(), (list, tuple)) else [self.getLoss()]:
                if loss and not _takes(getattr(loss, "forward", loss), None, None, reduction="none"):
                    raise ValueError("sample_weight_col needs losses with a parameter reduction, as "
                                     "torch.nn.functional.mse_loss has it")
        for group in self.getMetrics():
            if isinstance(group, (list, tuple)) and len(group) not in (1, len(labels)):
                raise ValueError(f"a group of metrics has {len(group)} functions for {len(labels)} labels; give one for all "
                                 "labels, or one for each")
        validation = self.getValidation()
        if validation is not None and not isinstance(validation, str) and not 0 <= float(validation) < 1:
            raise ValueError(f"validation is {validation}; it must be a fraction from 0 to below 1, or a column")
        if self.getTrainMinibatchFn() is not None:
            if self.getBackwardPassesPerStep() > 1:
                raise ValueError("train_minibatch_fn makes a step of the optimizer for each batch; leave out "
                                 "backward_passes_per_step")
            if not _takes(self.getTrainMinibatchFn(), *[None] * 7):
                raise ValueError("train_minibatch_fn must be a function of model, optimizer, transform_outputs, loss_fn, "
                                 "inputs, labels and sample_weights")

    def _check_state(self, state, run_id):
        shapes = [{name: tuple(value.shape) for name, value in model.items() if torch.is_tensor(value)}
                  for model in (state["model"], self.getModel().state_dict())]
        if shapes[0] != shapes[1]:
            raise ValueError(f"the checkpoint of the run {run_id} is of another model; give another run_id")

    def _check_rows(self, rows):
        """Returns whether the numbers of each label are whole."""
        total, validating = sum(rows.rows), sum(rows.validating)
        if not total:
            raise ValueError("the table has no rows")
        if total == validating:
            raise ValueError("validation leaves no rows for the training; choose fewer")
        first = rows.groups[0].scanner(columns=rows.columns, schema=rows.schema).head(2)
        arrays = {name: flat(first[name], name) for name in rows.columns}
        rows.shapes = {name: array.shape[1:] for name, array in arrays.items()}
        if not self.getTransformationFn():
            arrays = {name: numbers(array, name) for name, array in arrays.items()}
            for name, shape in zip(self.getFeatureCols(), self.getInputShapes() or []):
                self._check_shape(arrays[name], name, shape)
        return {name: {"type": str(rows.schema.field(name).type), "shape": list(arrays[name].shape[1:]),
                       "whole": pa.types.is_integer(rows.schema.field(name).type)} for name in self.getLabelCols()}

    def _check_shape(self, array, name, shape):
        two = np.concatenate([array[:1], array[:1]])
        try:
            fits = len(two.reshape(shape)) == 2
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(f"input_shapes: the shape {list(shape)} does not fit the {two[0].size} numbers in each row of "
                             f"column '{name}'; give -1 and then dimensions whose product is {two[0].size}")

    # --- The ranks

    def _ranks(self):
        """What starts the ranks."""
        if self.getBackend() is not None and self.getNumProc() is not None:
            raise ValueError('At most one of parameters "backend" and "num_proc" may be specified')
        return self.getBackend() or runners.SparkBackend(self.getNumProc())

    def _run(self, backend, job):
        """The value of rank 0."""
        ours = {"values": "first", "run_dir": job.folder} if isinstance(backend, runners.SparkBackend) else {}
        return backend.run(_train.train, args=(job,), **ours)[0]

    def _bound_optimizer(self):
        """The optimizer, with the parameters of this very model, so that both can be sent together."""
        model, optimizer = self.getModel(), self.getOptimizer()
        known = {id(parameter) for parameter in model.parameters()}
        if all(id(parameter) in known for group in optimizer.param_groups for parameter in group["params"]):
            return optimizer
        bound = type(optimizer)(model.parameters(), lr=1.)
        try:
            bound.load_state_dict(optimizer.state_dict())
        except ValueError as error:
            raise ValueError(f"the optimizer is not of this model ({error}); give it model.parameters()") from None
        return bound

    def _options(self):
        names = ("loss loss_constructors loss_weights sample_weight_col metrics input_shapes label_shapes batch_size "
                 "val_batch_size epochs verbose callbacks shuffle shuffle_buffer_size train_minibatch_fn "
                 "train_steps_per_epoch validation_steps_per_epoch transformation_fn inmemory_cache_all use_gpu "
                 "backward_passes_per_step gradient_compression").split()
        return {name: self.getOrDefault(name) for name in names}

    def _described(self):
        """The options that fit.json has: numbers and texts."""
        values = {name: self.getOrDefault(name) for name in self._table}
        plain = {name: value for name, value in values.items() if isinstance(value, (int, float, str))}
        return {"model": type(self.getModel()).__name__, "optimizer": type(self.getOptimizer()).__name__,
                "features": self.getFeatureCols(), "labels": self.getLabelCols(), **plain}

    def _model(self, history, model_state, optimizer_state, run_id, types, folder):
        model, optimizer = copy.deepcopy((self.getModel(), self._bound_optimizer()))
        model.load_state_dict(model_state)
        optimizer.load_state_dict(optimizer_state)
        return TorchModel(history=history, model=model.eval(), optimizer=optimizer, run_id=run_id,
                          feature_columns=self.getFeatureCols(), label_columns=self.getLabelCols(),
                          input_shapes=self.getInputShapes(), loss=self.getLoss(),
                          loss_constructors=self.getLossConstructors(), _metadata=types, _run_path=folder)


class TorchModel(ModelParams, Model):
    """A trained model. transform() adds its outputs to a table as columns LABEL__output, or as setOutputCols() says."""

    def __init__(self, **parameters):
        super().__init__()
        self.setParams(**parameters)
        self.setOutputCols([f"{label}__output" for label in self.getLabelColumns() or []])

    def _transform(self, table):
        names, labels = self.getOutputCols(), self.getLabelColumns()
        if len(names) != len(labels):
            raise ValueError(f"setOutputCols() has named {len(names)} columns for the {len(labels)} labels {labels}; name one "
                             "for each")
        types, folder = self.getOrDefault("_metadata") or {}, self.getOrDefault("_run_path")
        whole = [types.get(label, {}).get("whole", False) for label in labels]
        if isinstance(table, (str, os.PathLike)) and not folder:
            raise ValueError("this model has no run directory for the result; give a table instead of a path, for example "
                             "pyarrow.parquet.read_table(path)")
        model = copy.deepcopy(self.getModel()).cpu().eval()
        outputs = _tables.Outputs(model, self.getFeatureColumns(), self.getInputShapes(), names, whole)
        return outputs.add(table, folder and os.path.join(folder, "transformed"))


def _takes(function, *arguments, **named):
    """Whether a function can be called so. Those of torch in C++ do not say it."""
    try:
        inspect.signature(function).bind(*arguments, **named)
    except TypeError:
        return False
    except ValueError:
        pass
    return True


def _unscaled(state):
    for group in state["optimizer"]["param_groups"]:
        group["lr"] = group["lr"] / state["ranks"]
    return state["optimizer"]
