#include "farandole/checkpoint/safetensors.h"

#include <fcntl.h>
#include <span>
#include <string>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/text/json.h"
#include "farandole/checkpoint/checkpoint_file.h"
#include "farandole/checkpoint/schema.h"

namespace farandole {
namespace {

const char* safetensors_name(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return "F16";
    case DType::bfloat16:
      return "BF16";
    case DType::float32:
      return "F32";
    case DType::float64:
      return "F64";
    case DType::int32:
      return "I32";
    case DType::int64:
      return "I64";
    case DType::uint8:
      return "U8";
    case DType::boolean:
      return "BOOL";
    case DType::int8:
      return "I8";
    case DType::int16:
      return "I16";
  }
  return "";
}

// The length of the text as 64 bits, and the text, filled up so that the data begins at a multiple
// of 8 bytes.
std::string header_bytes(const Json& header) {
  auto text = exact_json_text(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(text.size() >> shift & 0xff));
  return bytes + text;
}

}  // namespace

std::size_t export_safetensors(const std::filesystem::path& checkpoint, const std::filesystem::path& output) {
  const CheckpointReader reader(checkpoint);
  Json header;
  header["__metadata__"] = {{"step", std::to_string(reader.header().step)},
                            {"epoch", std::to_string(reader.header().epoch)}};
  std::vector<std::size_t> exported;
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < reader.header().arrays.size(); ++i) {
    const auto& array = reader.header().arrays[i];
    if (!array.path.starts_with(schema::model)) continue;
    const auto begin = end;
    end += array.count() * size_of(array.dtype);
    header[array.path.substr(schema::model.size())] = {
        {"dtype", safetensors_name(array.dtype)}, {"shape", array.shape}, {"data_offsets", {begin, end}}};
    exported.push_back(i);
  }
  if (exported.empty()) throw UserError(checkpoint.string() + " has no model to export");
  AtomicFile written(output);
  const RawData file(written.temporary().string(), O_WRONLY | O_TRUNC);
  const auto head = header_bytes(header);
  file.write(0, std::as_bytes(std::span(head)));
  std::uint64_t offset = head.size();
  for (const auto index : exported) {
    const auto array = reader.read(index);
    file.write(offset, array.bytes);
    offset += array.bytes.size();
  }
  written.publish();
  return exported.size();
}

}  // namespace farandole
