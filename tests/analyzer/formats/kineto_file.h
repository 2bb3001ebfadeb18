// Builds small traces in the format of PyTorch's profiler. Plain values.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace farandole::testing {

// In the format of torch.profiler. Units: microseconds.
class KinetoFile {
 public:
  explicit KinetoFile(int rank, int world_size = 2, const std::string& backend = "nccl") {
    file_ = {{"schemaVersion", 1},
             {"deviceProperties", {{{"id", 0}, {"name", "NVIDIA H200"}}}},
             {"distributedInfo", {{"backend", backend}, {"rank", rank}, {"world_size", world_size}}},
             {"displayTimeUnit", "ms"},
             {"traceName", "trace.json"}};
    add({{"ph", "M"}, {"name", "process_name"}, {"pid", 39}, {"tid", 0}, {"args", {{"name", "python"}}}});
    span("Trace", "PyTorch Profiler (0)", "Spans", "PyTorch Profiler", 0, 9e6);
  }
  void add(nlohmann::json event) { events_.push_back(std::move(event)); }
  void span(const std::string& category, const std::string& name, const nlohmann::json& process,
            const nlohmann::json& thread, double start, double end, const nlohmann::json& args = {}) {
    nlohmann::json event = {{"ph", "X"}, {"cat", category}, {"name", name}, {"ts", start}};
    event.update({{"pid", process}, {"tid", thread}, {"dur", end - start}});
    if (!args.is_null()) event["args"] = args;
    add(std::move(event));
  }
  void cpu(const std::string& category, const std::string& name, double start, double end) {
    span(category, name, 39, 39, start, end, {{"External id", 5}});
  }
  void operation(int thread, const std::string& name, double start, double end) {
    span("cpu_op", name, 39, thread, start, end);
  }
  // On another thread than the training thread.
  void gloo(const std::string& name, int thread, double start, double end, int elements) {
    span("user_annotation", name, 39, thread, start, end,
         {{"Input type", {"float"}}, {"Input Dims", {{elements}}}});
  }
  void gpu(const std::string& category, const std::string& name, int stream, double start, double end,
           nlohmann::json args = nlohmann::json::object()) {
    args.update({{"stream", stream}, {"device", 0}, {"grid", {1, 2, 3}}});
    span(category, name, 0, stream, start, end, args);
  }
  void all_reduce(double start, double end) {
    gpu("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 20, start, end,
        {{"Collective name", "allreduce"},
         {"In msg nelems", 1000000},
         {"dtype", "Float"},
         {"Group size", 2},
         {"Process Group Name", "0"}});
  }
  std::string text() const {
    auto file = file_;
    file["traceEvents"] = events_;
    return file.dump(2);
  }

 private:
  nlohmann::json file_, events_ = nlohmann::json::array();
};

}  // namespace farandole::testing
