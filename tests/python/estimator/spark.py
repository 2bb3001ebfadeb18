"""A driver with Spark: columns of vectors and arrays, a pipeline, and outputs that are vectors and numbers."""
import os
import sys

import numpy as np
import pandas
import torch
from pyspark.ml import Estimator, Model, Pipeline
from pyspark.ml.functions import array_to_vector
from pyspark.ml.linalg import DenseVector
from pyspark.sql import SparkSession
from torch import nn
from torch.nn import functional as F

from farandole.estimator import Store, TorchEstimator


def main(folder):
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    store = Store.create(folder)
    rng = np.random.default_rng(1)
    features = rng.normal(size=(61, 4))
    rows = [(list(map(float, row)), number % 3, float(row.sum()), f"row {number}") for number, row in enumerate(features)]
    frame = spark.createDataFrame(rows, "features array<double>, kind int, total double, text string")
    frame = frame.withColumn("vector", array_to_vector("features"))

    torch.manual_seed(4)
    net = nn.Sequential(nn.Linear(4, 3), nn.LogSoftmax(1))
    estimator = TorchEstimator(
        num_proc=2, store=store, model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.01), verbose=0, batch_size=8,
        loss=lambda output, label: F.nll_loss(output, label.long()), feature_cols=["vector"], label_cols=["kind"], epochs=2)
    assert isinstance(estimator, Estimator) and "passes" in estimator.explainParam("epochs")
    model = Pipeline(stages=[estimator]).fit(frame)
    assert isinstance(model.stages[0], Model) and len(model.stages[0].getHistory()) == 2
    out = model.transform(frame)
    assert out.columns == [*frame.columns, "kind__output"], out.columns
    result = out.toPandas()
    assert isinstance(result["kind__output"][0], DenseVector)
    with torch.no_grad():
        expected = model.stages[0].getModel()(torch.tensor(np.array(result["features"].to_list()), dtype=torch.float32))
    assert np.allclose(np.array(result["kind__output"].to_list()), expected, atol=1e-6)

    # Two outputs: a number as the label has it, and a whole one. The same rows in pandas give the same numbers.
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.total, self.kind = nn.Linear(4, 1), nn.Linear(4, 1)

        def forward(self, features):
            return self.total(features), self.kind(features)

    net = Two()
    estimator = TorchEstimator(
        num_proc=1, store=store, model=net, optimizer=torch.optim.Adam(net.parameters()), verbose=0, loss=F.mse_loss,
        feature_cols=["features"], label_cols=["total", "kind"], validation=0.2)
    model = estimator.fit(frame, {estimator.epochs: 2}).setOutputCols(["a", "b"])
    assert len(model.getHistory()) == 2 and estimator.getEpochs() == 1
    out = model.transform(frame)
    assert dict(out.dtypes)["a"] == "double" and dict(out.dtypes)["b"] == "bigint", out.dtypes
    result = out.toPandas()
    again = model.transform(pandas.DataFrame({"features": [row[0] for row in rows]}))
    assert np.allclose(result["a"], again["a"]) and np.array_equal(result["b"], again["b"])
    left = [name for name in os.listdir(folder) if name.startswith("intermediate")]
    assert not left, left
    spark.stop()
    print("equal")


if __name__ == "__main__":
    main(sys.argv[1])
