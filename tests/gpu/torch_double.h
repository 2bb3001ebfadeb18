// A device of LibTorch whose streams, events and memory are those of the test double of CUDA. Its tensors can
// be made, and copied there from pinned memory; nothing else is computed with them.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <algorithm>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <torch/library.h>
#include <torch/types.h>
#include <utility>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/comm/gpu/gpu_runtime.h"

namespace farandole {

class TorchDouble {
 public:
  static constexpr auto type = c10::DeviceType::PrivateUse1;
  static inline const torch::Device device{type, 0};
  enum Stream : c10::StreamId { computing, other, streams };

  // LibTorch keeps the device until the process ends, and so is this object.
  static TorchDouble& install() {
    static auto& only = *new TorchDouble;
    return only;
  }

  const std::shared_ptr<const GpuRuntime> runtime = load();
  CUstream_st* handle(c10::StreamId id) { return streams_[static_cast<std::size_t>(id)]->handle(); }
  int used_again() const { return used_again_; }  // Pieces of memory.

 private:
  // As LibTorch's allocator for CUDA: memory is used again at once for work of the stream that it was
  // allocated on, unless another stream was recorded that has not come so far.
  struct Block {
    Buffer memory;
    std::size_t bytes = 0;
    c10::StreamId stream = computing;
    std::set<c10::StreamId> recorded;
    std::vector<std::unique_ptr<GpuEvent>> awaited;
    bool is_free = false;
  };
  class Memory final : public c10::Allocator {
   public:
    c10::DataPtr allocate(std::size_t bytes) override {
      auto& own = install();
      for (auto& [memory, block] : own.blocks_) {
        std::erase_if(block.awaited, [](const auto& event) { return event->reached(); });
        if (!block.is_free || block.stream != own.current_ || block.bytes < bytes || !block.awaited.empty())
          continue;
        block.is_free = false;
        ++own.used_again_;
        return {memory, memory, &release, device};
      }
      auto fresh =
          own.runtime->allocate_pinned(bytes);  // Unlike that for a device, this function does not wait.
      auto* const memory = fresh.get();
      own.blocks_[memory] = {std::move(fresh), bytes, own.current_, {}, {}, false};
      return {memory, memory, &release, device};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
      std::memcpy(to, from, bytes);
    }

   private:
    static void release(void* memory) {
      auto& own = install();
      auto& block = own.blocks_.at(memory);
      for (const auto stream : block.recorded)
        block.awaited.emplace_back(std::make_unique<GpuEvent>(own.runtime))->record(own.handle(stream));
      block.recorded.clear();
      block.is_free = true;
    }
  };
  class PinnedMemory final : public c10::Allocator {
   public:
    c10::DataPtr allocate(std::size_t bytes) override {
      auto& all = install().pinned_;
      auto* const memory = all.emplace_back(install().runtime->allocate_pinned(bytes)).get();
      return {memory, memory, [](void*) {}, c10::kCPU};
    }
    c10::DeleterFnPtr raw_deleter() const override {
      return [](void*) {};
    }
    void copy_data(void* to, const void* from, std::size_t bytes) const override {
      std::memcpy(to, from, bytes);
    }
  };
  struct Hooks final : at::PrivateUse1HooksInterface {
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
    c10::Allocator* getPinnedMemoryAllocator() const override { return &install().pinned_memory_; }
    bool isPinnedPtr(const void* data) const override {
      const auto& all = install().pinned_;
      return std::any_of(all.begin(), all.end(), [&](const auto& memory) { return memory.get() == data; });
    }
  };
  struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return TorchDouble::type; }
    c10::Device exchangeDevice(c10::Device) const override { return device; }
    c10::Device getDevice() const override { return device; }
    void setDevice(c10::Device) const override {}
    void uncheckedSetDevice(c10::Device) const noexcept override {}
    c10::DeviceIndex deviceCount() const noexcept override { return 1; }
    c10::Stream getStream(c10::Device) const override { return stream(install().current_); }
    c10::Stream getDefaultStream(c10::Device) const override { return stream(computing); }
    c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return stream(other); }
    c10::Stream exchangeStream(c10::Stream next) const override {
      return stream(std::exchange(install().current_, next.id()));
    }
    void record(void** event, const c10::Stream& on, c10::DeviceIndex, c10::EventFlag) const override {
      if (*event == nullptr) *event = new GpuEvent(install().runtime);
      static_cast<GpuEvent*>(*event)->record(install().handle(on.id()));
    }
    void block(void* event, const c10::Stream& waiting) const override {
      if (event != nullptr) static_cast<GpuEvent*>(event)->hold(install().handle(waiting.id()));
    }
    void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
      delete static_cast<GpuEvent*>(event);
    }
    void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& on) const override {
      auto& block = install().blocks_.at(data.get());
      if (on.id() != block.stream) block.recorded.insert(on.id());
    }
    static c10::Stream stream(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, device, id); }
  };

  TorchDouble() {
    for (int i = 0; i < streams; ++i) streams_.push_back(std::make_unique<GpuStream>(runtime));
    c10::register_privateuse1_backend("double");
    at::RegisterPrivateUse1HooksInterface(&hooks_);
    c10::impl::DeviceGuardImplRegistrar(type, &guard_);
    functions_.impl("empty.memory_format", &empty);
    functions_.impl("empty_strided", &empty_strided);
    functions_.impl("_copy_from", &copy);
    functions_.impl("record_stream", &record_stream);
  }

  static std::shared_ptr<const GpuRuntime> load() {
    ::setenv("FARANDOLE_CUDA_LIBRARY", FARANDOLE_GPU_DOUBLE, 1);
    std::string why_not;
    auto runtime = GpuRuntime::load(why_not);
    if (runtime == nullptr) throw Error(why_not);
    return runtime;
  }

  static at::Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                          std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>,
                          std::optional<c10::MemoryFormat> format) {
    return at::detail::empty_generic(size, &install().memory_,
                                     c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                     c10::dtype_or_default(dtype), format);
  }
  static at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                                  std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                                  std::optional<c10::Device>, std::optional<bool>) {
    return at::detail::empty_strided_generic(size, stride, &install().memory_,
                                             c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                             c10::dtype_or_default(dtype));
  }
  // From other memory than pinned, or without non_blocking, the host would wait for a GPU.
  static at::Tensor copy(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
    auto& own = install();
    TORCH_CHECK(non_blocking && own.hooks_.isPinnedPtr(from.const_data_ptr()), "the host waits for the copy");
    TORCH_CHECK(from.strides() == to.strides(), "the copy needs a kernel");
    own.runtime->copy(to.data_ptr(), from.const_data_ptr(), from.nbytes(), own.handle(own.current_));
    return to;
  }
  static void record_stream(at::Tensor& tensor, c10::Stream stream) {
    install().guard_.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
  }

  std::vector<std::unique_ptr<GpuStream>> streams_;
  c10::StreamId current_ = computing;
  std::map<void*, Block> blocks_;
  std::vector<Buffer> pinned_;
  int used_again_ = 0;
  Memory memory_;
  PinnedMemory pinned_memory_;
  Hooks hooks_;
  Guard guard_;
  torch::Library functions_{torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__};
};

}  // namespace farandole
