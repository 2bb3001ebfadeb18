// Everything a C++ program needs to train with Farandole, and LibTorch.
#pragma once

#include <torch/torch.h>

#include "farandole/estimator/launch.h"
#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/distributed_sampler.h"
#include "farandole/train/embedding.h"
#include "farandole/train/group.h"
#include "farandole/train/join.h"
#include "farandole/train/learning_rate.h"
#include "farandole/train/linear.h"
#include "farandole/train/precision.h"
#include "farandole/train/replica_check.h"
#include "farandole/train/run.h"
#include "farandole/train/session.h"
#include "farandole/train/sync_batch_norm.h"
