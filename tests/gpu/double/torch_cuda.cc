// A test double of LibTorch's CUDA library, to be found as libtorch_cuda.so. Its devices are those of the
// double of CUDA. Tensors on them are in memory of the host, and LibTorch's kernels for CPUs compute with
// them on the calling thread. Each device has one stream, whose work this thread runs as well.
// Thread safety: any thread may call this at any time.
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <cstdlib>
#include <dlfcn.h>
#include <driver_types.h>
#include <memory>
#include <mutex>
#include <set>
#include <torch/library.h>
#include <utility>
#include <vector>

namespace {

using at::Tensor;

constexpr auto cuda = c10::DeviceType::CUDA;

template <class Function>
Function& of_cuda(const char* name) {
  void* const library = ::dlopen(std::getenv("FARANDOLE_CUDA_LIBRARY"), RTLD_NOW);
  void* const found = library != nullptr ? ::dlsym(library, name) : nullptr;
  TORCH_CHECK(found != nullptr, "the double of LibTorch needs the double of CUDA, which lacks ", name);
  return *reinterpret_cast<Function*>(found);
}

c10::DeviceIndex device_count() {
  int count = 0;
  of_cuda<cudaError_t(int*)>("cudaGetDeviceCount")(&count);
  return static_cast<c10::DeviceIndex>(count);
}

c10::DeviceIndex current_device() {
  int device = 0;
  of_cuda<cudaError_t(int*)>("cudaGetDevice")(&device);
  return static_cast<c10::DeviceIndex>(device);
}

void set_device(c10::DeviceIndex device) {
  of_cuda<cudaError_t(int)>("cudaSetDevice")(device);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return cuda; }
  c10::Device exchangeDevice(c10::Device next) const override {
    const auto before = getDevice();
    set_device(next.index());
    return before;
  }
  c10::Device getDevice() const override { return {cuda, current_device()}; }
  void setDevice(c10::Device device) const override { set_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { set_device(device.index()); }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }
  c10::Stream getStream(c10::Device device) const override { return stream(device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(device); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return stream(device); }
  c10::Stream exchangeStream(c10::Stream next) const override { return next; }
  void* getStreamNativeHandle(const c10::Stream) const override {
    return of_cuda<CUstream_st*()>("gpu_double_host_stream")();
  }
  // What a thread has called is done, so there is nothing to wait for.
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}

 private:
  static c10::Stream stream(c10::Device device) {
    if (!device.has_index()) device = {cuda, current_device()};
    return c10::Stream(c10::Stream::UNSAFE, device, 0);
  }
};

// LibTorch's default generator of a GPU has a state of 16 bytes. Kernels take that of the CPU.
struct Generator final : c10::GeneratorImpl {
  explicit Generator(c10::DeviceIndex device)
      : c10::GeneratorImpl({cuda, device}, c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}
  void set_current_seed(std::uint64_t seed) override { numbers[0] = seed; }
  void set_offset(std::uint64_t offset) override { numbers[1] = offset; }
  std::uint64_t get_offset() const override { return numbers[1]; }
  std::uint64_t current_seed() const override { return numbers[0]; }
  std::uint64_t seed() override { return numbers[0]; }
  void set_state(const c10::TensorImpl& state) override {
    std::memcpy(numbers, state.data(), sizeof numbers);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const auto state = at::empty({sizeof numbers}, at::kByte);
    std::memcpy(state.mutable_data_ptr(), numbers, sizeof numbers);
    return state.getIntrusivePtr();
  }
  Generator* clone_impl() const override {
    auto* const clone = new Generator(device().index());
    std::copy(std::begin(numbers), std::end(numbers), clone->numbers);
    return clone;
  }

  std::uint64_t numbers[2] = {};
};

class Pinned final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const memory = std::malloc(bytes);
    const std::lock_guard lock(mutex_);
    all_.insert(memory);
    return {memory, memory, &release, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  bool has(const void* memory) {
    const std::lock_guard lock(mutex_);
    return all_.contains(memory);
  }
  static Pinned& only() {
    static auto& pinned = *new Pinned;
    return pinned;
  }

 private:
  static void release(void* memory) {
    {
      const std::lock_guard lock(only().mutex_);
      only().all_.erase(memory);
    }
    std::free(memory);
  }
  std::mutex mutex_;
  std::set<const void*> all_;
};

// Only tells figures, as LibTorch's allocator for GPUs does; tensors are elsewhere.
struct Memory final : c10::DeviceAllocator {
  c10::DataPtr allocate(std::size_t) override { TORCH_CHECK(false, "the double has no memory of its own"); }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, std::size_t) const override {}
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].peak = std::int64_t{64} << 20;
    stats.reserved_bytes[0].current = std::int64_t{80} << 20;
    stats.reserved_bytes[0].peak = std::int64_t{96} << 20;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex) override {
    return {std::size_t{600} << 20, std::size_t{1000} << 20};
  }
};

struct CUDAHooks final : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasCUDA() const override { return isAvailable(); }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return device_count(); }
  c10::DeviceIndex deviceCount() const override { return device_count(); }
  c10::DeviceIndex current_device() const override { return ::current_device(); }
  c10::DeviceIndex getCurrentDevice() const override { return ::current_device(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_device(device); }
  c10::Device getDeviceFromPtr(void*) const override { return {cuda, ::current_device()}; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &Pinned::only(); }
  bool isPinnedPtr(const void* data) const override { return Pinned::only().has(data); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    static const auto& all = *new auto([] {
      std::vector<at::Generator> generators;
      for (c10::DeviceIndex i = 0; i < device_count(); ++i)
        generators.push_back(at::make_generator<Generator>(i));
      return generators;
    }());
    return all.at(static_cast<std::size_t>(device < 0 ? ::current_device() : device));
  }
};

// The tensor of the other device with the same memory, which it keeps alive.
Tensor on_cpu(const Tensor& there) {
  const auto options = at::TensorOptions(there.dtype()).device(c10::kCPU);
  return at::from_blob(
      there.mutable_data_ptr(), there.sizes(), there.strides(), [there](void*) {}, options);
}

Tensor on_device(const Tensor& here, c10::DeviceIndex index) {
  const auto& storage = here.storage();
  c10::DataPtr data(storage.mutable_data(), new Tensor(here),
                    [](void* owner) { delete static_cast<Tensor*>(owner); }, {cuda, index});
  auto memory = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
                                                      std::move(data), nullptr, false);
  auto there = at::detail::make_tensor<c10::TensorImpl>(
      std::move(memory), c10::DispatchKeySet(c10::DispatchKey::CUDA), here.dtype());
  there.unsafeGetTensorImpl()->set_sizes_and_strides(here.sizes(), here.strides(), here.storage_offset());
  return there;
}

// Calls the kernel for CPUs. Arguments that it returns are returned as they came.
void run_on_cpu(const c10::OperatorHandle& function, torch::jit::Stack* stack) {
  std::vector<std::pair<Tensor, Tensor>> twins;  // there and here
  auto index = current_device();
  const auto to_cpu = [&](const Tensor& there) {
    if (!there.defined() || !there.is_cuda()) return there;
    index = there.device().index();
    return twins.emplace_back(there, on_cpu(there)).second;
  };
  for (auto at = stack->size() - function.schema().arguments().size(); at < stack->size(); ++at) {
    auto* const value = &(*stack)[at];
    if (value->isTensor()) {
      *value = to_cpu(value->toTensor());
    } else if (value->isTensorList()) {
      std::vector<Tensor> all;
      for (const auto& each : value->toTensorVector()) all.push_back(to_cpu(each));
      *value = std::move(all);
    } else if (value->isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> all;
      for (const auto& each : value->toOptionalTensorVector())
        all.push_back(each ? std::make_optional(to_cpu(*each)) : std::nullopt);
      *value = std::move(all);
    } else if (value->isDevice()) {
      if (value->toDevice().has_index()) index = value->toDevice().index();
      *value = c10::Device(c10::kCPU);
    }
  }
  function.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  const auto back = [&](const Tensor& here) {
    if (!here.defined()) return here;
    for (const auto& [there, twin] : twins)
      if (twin.is_same(here)) {
        TORCH_CHECK(there.sizes() == here.sizes(), "the double cannot resize");
        return there;
      }
    return on_device(here, index);
  };
  for (auto at = stack->size() - function.schema().returns().size(); at < stack->size(); ++at) {
    auto& value = (*stack)[at];
    if (value.isTensor()) {
      value = back(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<Tensor> all;
      for (const auto& each : value.toTensorVector()) all.push_back(back(each));
      value = std::move(all);
    }
  }
}

const Guard guard;
Memory memory;

}  // namespace

namespace at {
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at

namespace {
const c10::impl::DeviceGuardImplRegistrar registered_guard(cuda, &guard);
const c10::AllocatorRegisterer<cuda> registered_memory(&memory);
}  // namespace

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

// Those whose usual functions are for all devices, or that need the tensor itself.
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("record_stream", [](Tensor&, c10::Stream) {});
}
