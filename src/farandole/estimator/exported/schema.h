// The numbers and texts of torch.export's schema (version 8) as c10's types.
// Thread safety: any thread may call this at any time.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "farandole/base/text/json.h"

namespace farandole {

// A size, a stride or an offset in a document. One with a symbol holds what it was in the example.
struct ExportedExtent {
  std::int64_t value = 0;
  bool is_dynamic = false;
};

struct ExportedTensorMeta {
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<ExportedExtent> sizes, strides;
  ExportedExtent offset;
  bool requires_grad = false;
};

// All of these throw Json::exception or std::runtime_error if the document has something else there.
std::int64_t exported_integer(const Json& json);
double exported_number(const Json& json);  // Infinities and NaN are texts.
c10::ScalarType exported_dtype(const Json& json);
std::int64_t exported_number_of(c10::ScalarType dtype);
c10::Layout exported_layout(const Json& json);
c10::MemoryFormat exported_memory_format(const Json& json);
c10::Device exported_device(const Json& json);
ExportedTensorMeta exported_tensor_meta(const Json& json);

// "float32 [rows, 3, 4]"
std::string describe(const ExportedTensorMeta& meta);
const char* python_name(c10::ScalarType dtype);

}  // namespace farandole
