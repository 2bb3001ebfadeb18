"""The notebook of Horovod's estimator: MNIST in a Spark DataFrame, trained on three ranks, applied and measured by Spark.

    farandole python spark_estimator.py DATA

It needs pyspark, pyarrow, pandas and Java. DATA has the files of MNIST, packed or not.
"""
import argparse
import glob
import gzip
import os
import sys

import horovod.spark.torch as hvd
import numpy as np
import pandas
import pyspark.sql.types as T
import torch
from horovod.spark.common.backend import SparkBackend
from horovod.spark.common.store import Store
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, features):
        x = F.relu(F.max_pool2d(self.conv1(features), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.dropout(F.relu(self.fc1(x.flatten(1))), training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


def read_mnist(folder, samples):
    """Features, a list of 784 numbers in each row, and labels."""
    def array(kind, header):
        name = glob.glob(os.path.join(folder, f"train*-{kind}-ubyte*"))[0]
        with (gzip.open if name.endswith(".gz") else open)(name, "rb") as file:
            return np.frombuffer(file.read(), np.uint8, offset=header)[:samples and samples * (784 if header == 16 else 1)]

    features = array("images-idx3", 16).reshape(-1, 784) / 255.
    return pandas.DataFrame({"features": list(features), "label": array("labels-idx1", 8).astype(float)})


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("data")
    options.add_argument("--store", default="runs", help="a folder that all hosts share")
    options.add_argument("--ranks", type=int, default=3)
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--samples", type=int, help="fewer of the samples, for a trial")
    options = options.parse_args()

    spark = (SparkSession.builder.master("local[3]").appName("estimator")
             .config("spark.sql.execution.arrow.pyspark.enabled", "true").getOrCreate())
    store = Store.create(options.store)
    df = spark.createDataFrame(read_mnist(options.data, options.samples)).cache()
    train_df, test_df = df.randomSplit([0.9, 0.1])

    torch.manual_seed(1)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    backend = SparkBackend(num_proc=options.ranks, stdout=sys.stdout, stderr=sys.stderr,
                           prefix_output_with_timestamp=True)
    torch_estimator = hvd.TorchEstimator(
        backend=backend,
        store=store,
        partitions_per_process=1,
        model=model,
        optimizer=optimizer,
        loss=lambda input, target: F.nll_loss(input, target.long()),
        input_shapes=[[-1, 1, 28, 28]],
        feature_cols=["features"],
        label_cols=["label"],
        batch_size=128,
        epochs=options.epochs,
        validation=0.1,
        verbose=2)
    torch_model = torch_estimator.fit(train_df).setOutputCols(["label_prob"])

    pred_df = torch_model.transform(test_df)
    argmax = udf(lambda v: float(np.argmax(v)), returnType=T.DoubleType())
    pred_df = pred_df.withColumn("label_pred", argmax(pred_df.label_prob))
    evaluator = MulticlassClassificationEvaluator(predictionCol="label_pred", labelCol="label", metricName="accuracy")
    print("Test accuracy:", evaluator.evaluate(pred_df))
    spark.stop()
