"""What an estimator calls on every rank before and after each epoch. All ranks see the same history, so they decide
alike, and a run that continues after a kill decides as one that was not killed."""
import math

__all__ = ["Callback", "EarlyStopping", "LearningRate"]


class Callback:
    def on_epoch_begin(self, epoch, training):
        """`epoch` counts from 0. `training` has model, optimizer, history, and base_rates, the learning rate of each
        parameter group, multiplied by the number of ranks."""

    def on_epoch_end(self, epoch, training):
        """The last entry of training.history is of this epoch. Ends the training if it returns True."""


class EarlyStopping(Callback):
    """Ends the training after `patience` epochs in which the loss was not lower by more than min_delta: the loss of the
    validation rows if there are any."""

    def __init__(self, patience=1, min_delta=0.0):
        if patience < 1:
            raise ValueError(f"EarlyStopping(patience={patience}) must wait for at least 1 epoch")
        self.patience, self.min_delta = patience, min_delta

    def on_epoch_end(self, epoch, training):
        best, waited = math.inf, 0
        for entry in training.history:
            loss = entry.get("validation", entry["train"])["loss"]
            best, waited = (loss, 0) if loss < best - self.min_delta else (best, waited + 1)
        return waited >= self.patience


class LearningRate(Callback):
    """Before each epoch, sets the learning rate to function(epoch) times the rate of the optimizer and the number of
    ranks."""

    def __init__(self, function):
        self.function = function

    def on_epoch_begin(self, epoch, training):
        factor = self.function(epoch)
        for group, rate in zip(training.optimizer.param_groups, training.base_rates):
            group["lr"] = rate * factor
