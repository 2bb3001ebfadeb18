// The store of the estimator: a folder with one run directory per fit. Each run directory has a file
// fit.json, which is replaced as a whole. Together these files are the index, so that jobs which use the
// store at once need no lock.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "farandole/base/text/json.h"
#include "farandole/estimator/estimator.h"
#include "farandole/tables/class_columns.h"

namespace farandole {

struct FitRecord {
  std::string id;
  std::filesystem::path folder;
  std::string table;
  Json options;        // Those that decide what is trained and how.
  ClassNames classes;  // Of the labels that are texts in the table.
  std::vector<EpochResult> history;
  bool finished = false;
  std::int64_t changed_ns = 0;

  // The lowest score_of() an epoch.
  std::optional<double> best_loss() const;
  // Whether more than `patience` epochs have not lowered the loss; 0: never.
  bool out_of_patience(std::int64_t patience) const;
};

// The loss by which epochs are compared: on the validation rows if there are any. A loss that is not a
// number is infinite.
double score_of(const EpochResult& epoch);

// JSON has no NaN and no infinities. The library writes null for them, which is NaN here.
double number_from(const Json& json);

Json options_to_json(const EstimatorOptions& options);
// Sets what the ranks that apply a model need: columns, shapes, losses.
ColumnOptions columns_from_json(const Json& json);

void write_fit(const FitRecord& record);
// Ordered by id. Folders without fit.json are left out.
std::vector<FitRecord> list_fits(const std::filesystem::path& store);
// Throws: UserError that names the runs that exist, if there is no such run.
FitRecord find_fit(const std::filesystem::path& store, const std::string& id);

// Returns rank 0's choice of a run. The ranks may have seen different ones, because other jobs add runs.
// Collective: every rank of the job must call this in the same order.
std::filesystem::path run_of_rank_0(Session& session, const std::filesystem::path& run);

// Returns the run that a fit continues or creates: the one with options.run, or else the unfinished one with
// the same options that no job is working on, or else a new one whose folder this call has made.
FitRecord open_fit(const EstimatorOptions& options, const std::string& table);

}  // namespace farandole
