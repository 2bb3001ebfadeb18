// Describes a model file for people: inputs, outputs, operators, and what this library lacks for it.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <string>

namespace farandole {

// Returns a text of several lines. `evaluation_file` as in load_model(). Throws: UserError or CorruptInput if
// the file is no model.
std::string show_model(const std::string& file, const std::string& evaluation_file = "");

}  // namespace farandole
