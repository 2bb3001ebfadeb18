// What a checkpoint file contains: names of data sets and attributes, and their meaning.
// Thread safety: any thread may call this at any time.
//
// Format version 2. Version 1 lacks best_score, best_step and versions.
//
// Data sets. The model and the optimizer have the names, shapes and types of PyTorch's state_dict.
//   /model/NAME                          parameters and buffers
//   /optimizer/state/NAME/FIELD          state of each parameter; NAME as in /model
//   /sampler/epoch                       int64: completed epochs
//   /sampler/samples                     int64: samples of this epoch's order that all ranks together have seen
//   /sampler/ranges, /sampler/passes, /sampler/loss
//                                        of a fit on a table, within an epoch: [n, 2] int64, the rows of its order that have
//                                        been read; int64, the batches that each rank has taken; float64, mean loss and steps
//   /sampler/scores                      the same: float64, sums of the metrics on the training rows, only with --metrics
//   /sampler/seed, /sampler/dataset_samples, /sampler/dataset_hash
//                                        int64: what the order of the samples depends on
//   /rng/rank-0000                       uint8: state of LibTorch's CPU generator, of each rank; on a GPU, the 16 bytes of
//                                        its generator follow
//   /compression/…                       error feedback of earlier versions; nothing writes or uses it
//   /loss_scale/factor                   float64: what the loss is multiplied by; only with loss scaling, like
//   /loss_scale/good_steps               int64: steps without an overflow since the factor has changed
//   /values/NAME                         of a program: what it tracks besides, such as an average of the weights
// The learning-rate schedule has no state of its own: it is computed from the step, the epoch and the
// samples. A checkpoint is saved after an optimizer step, so there are no accumulated gradients.
//
// Attributes of the root:
//   format_version   int64
//   step             int64: completed optimizer steps
//   epoch            int64: completed epochs
//   world_size       int64: number of ranks
//   config           string: JSON with the options that decide what is trained and how
//   versions         string: JSON with the version of each library
//   score            float64: held-out loss; NaN if it was not evaluated
//   best_score       float64: lowest held-out loss of the run so far, with
//   best_step        int64: its step. NaN and 0 if none was evaluated
//   not_finite       string: a data set with a NaN or an infinity; only if there is one
//   xxh3             string: checksum of the list of data sets and attributes
// Every data set has an attribute xxh3, the XXH3 checksum (64 bits) of its bytes, and dtype.
#pragma once

#include <fmt/format.h>
#include <string>

namespace farandole::schema {

inline constexpr int format_version = 2;

inline const std::string model = "/model/";
inline const std::string optimizer = "/optimizer/state/";
inline const std::string sampler_epoch = "/sampler/epoch";
inline const std::string sampler_samples = "/sampler/samples";
// Of each rank; instead of samples in old files.
inline const std::string sampler_batches = "/sampler/batches";
inline const std::string sampler_ranges = "/sampler/ranges";
inline const std::string sampler_passes = "/sampler/passes";
inline const std::string sampler_loss = "/sampler/loss";
inline const std::string sampler_scores = "/sampler/scores";
inline const std::string sampler_seed = "/sampler/seed";
inline const std::string dataset_samples = "/sampler/dataset_samples";
inline const std::string dataset_hash = "/sampler/dataset_hash";
inline const std::string compression = "/compression/";
inline const std::string loss_scale = "/loss_scale/factor";
inline const std::string loss_scale_steps = "/loss_scale/good_steps";

inline const std::string values = "/values/";

inline std::string rank_folder(int rank) {
  return fmt::format("rank-{:04}", rank);
}
inline std::string rng(int rank) {
  return "/rng/" + rank_folder(rank);
}

}  // namespace farandole::schema
