// One program of an archive: its graph, and what its inputs and outputs are.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "farandole/estimator/exported/graph.h"

namespace farandole {

struct ExportedInput {
  enum class Kind { user, parameter, buffer, constant, none };
  Kind kind = Kind::user;
  std::string name;        // Of the value in the graph.
  std::string target{};    // Of a parameter, a buffer or a constant: its name in the state dict.
  bool persistent = true;  // Of a buffer: whether the state dict has it.
  std::optional<ExportedTensorMeta> meta{};  // Of tensors.
};

struct ExportedProgram {
  std::string name, document;  // The document is its JSON.
  std::string torch_version;
  ExportedGraph graph;
  std::vector<ExportedInput> inputs;
  // For each output of the graph: the buffer that takes it, or empty if it is the user's.
  std::vector<std::string> buffers_of_outputs;
  std::vector<ExportedTensorMeta> outputs;  // Of the user's tensors.
  std::vector<std::string> output_names;    // Of these: "logits", "1", "" for a single one. Empty: unknown.
  std::vector<std::string> guards;          // Conditions on the sizes of its inputs, for SizeGuards.

  // How dropout, batch normalization and the like were exported.
  int training_operators = 0, evaluation_operators = 0;
  int changed_buffers = 0;    // By other operators, which most models do in training only.
  std::string mode_operator;  // One of them, "aten.dropout".
  bool trains() const { return training_operators > 0 || changed_buffers > 0; }
  bool is_same_in_both_modes() const { return !trains() && evaluation_operators == 0; }

  std::vector<const ExportedInput*> user_inputs() const;
};

// Throws: UserError if the schema has another version, or if the program has inputs or outputs that this
// library does not have; Json::exception or std::runtime_error if the document is damaged.
ExportedProgram parse_exported_program(const std::string& name, std::string document);

}  // namespace farandole
