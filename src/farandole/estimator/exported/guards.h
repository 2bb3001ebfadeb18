// The conditions on the sizes of its inputs under which torch.export has recorded a program: another branch
// of a Python `if` would have given another graph.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace farandole {

class SizeGuards {
 public:
  // Expressions of Python as torch.export writes them, "L['x'].size()[0] % 2 == 0", and the names of the
  // program's inputs. Expressions of other kinds are left out.
  SizeGuards(const std::vector<std::string>& expressions, const std::vector<std::string>& inputs);

  // Returns the first condition that does not hold, or "".
  std::string violated_by(const std::vector<at::Tensor>& inputs) const;

 private:
  std::vector<std::string> expressions_;
  std::map<std::string, std::size_t> inputs_;
  mutable std::set<std::vector<std::int64_t>> held_;  // Sizes for which all conditions hold.
};

}  // namespace farandole
