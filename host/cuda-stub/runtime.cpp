// The CUDA runtime without a device. Memory is address space of the host, within a budget; a launch is checked and
// recorded, and computes nothing. A function that is not here is the real library's, and fails as on a machine without
// a driver.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "record.h"

#define STUB extern "C" __attribute__((visibility("default")))

namespace {

// The device: an H100, unless CUDA_STUB_GIB and CUDA_STUB_CAPABILITY (80: A100) say otherwise.
std::size_t total_memory() {
  const char* gib = std::getenv("CUDA_STUB_GIB");
  return static_cast<std::size_t>((gib ? std::atof(gib) : 79.2) * (1ull << 30));
}

bool is_a100() {
  const char* capability = std::getenv("CUDA_STUB_CAPABILITY");
  return capability && std::strcmp(capability, "80") == 0;
}

int capability() { return is_a100() ? 80 : 90; }
int processors() { return is_a100() ? 108 : 132; }
int shared_memory_per_block() { return is_a100() ? 166912 : 232448; }
int shared_memory_per_processor() { return is_a100() ? 167936 : 233472; }

struct State {
  std::mutex lock;
  std::unordered_map<const void*, std::string> kernels;
  std::unordered_map<void*, std::size_t> blocks;
  std::size_t used = 0;
};

// Made at the first call, since libtorch registers kernels before this library is initialised. Never destroyed, since
// libtorch frees memory while the process exits.
State& state() {
  static State& state = *new State;
  return state;
}

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t fail(cudaError_t error) { return last_error = error; }

cudaError_t launch(const void* function, dim3 grid, dim3 block, std::size_t shared_memory) {
  std::string name;
  {
    std::lock_guard<std::mutex> guard(state().lock);
    name = state().kernels[function];
  }
  const unsigned long threads = static_cast<unsigned long>(block.x) * block.y * block.z;
  const bool grid_fits = grid.x && grid.y && grid.z && grid.x <= 2147483647u && grid.y <= 65535 && grid.z <= 65535;
  const bool block_fits = threads >= 1 && threads <= 1024 && block.z <= 64;
  if (!grid_fits || !block_fits || shared_memory > static_cast<std::size_t>(shared_memory_per_block())) {
    std::fprintf(stderr, "cuda-stub: invalid launch of %s: grid %u %u %u, block %u %u %u, %zu bytes shared\n",
                 name.c_str(), grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_memory);
    return fail(cudaErrorInvalidConfiguration);
  }
  record::launch(name);
  return cudaSuccess;
}

// A copy on the device is a launch. Copies to the host give zeros: lengths, tokens and log-probabilities of 0. Copies to the device are made if they have
// at most 1 MiB, so that the weights of a model stay address space.
void copy(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDeviceToHost) {
    std::memset(target, 0, bytes);
    // A flag that the host waits for, such as "all are finite", is true.
    if (bytes == 1) *static_cast<char*>(target) = 1;
  } else if (kind == cudaMemcpyHostToDevice && bytes <= (1 << 20)) {
    std::memcpy(target, source, bytes);
  } else if (kind == cudaMemcpyDeviceToDevice) {
    record::launch("copy on the device");
  }
}

}  // namespace

// Kernels of a library, as the code that nvcc generates registers and launches them.
STUB void** __cudaRegisterFatBinary(void*) {
  static void* handle[4];
  return handle;
}
STUB void __cudaRegisterFatBinaryEnd(void**) {}
STUB void __cudaUnregisterFatBinary(void**) {}
STUB char __cudaInitModule(void**) { return 1; }
STUB void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
STUB void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, std::size_t, int, int) {}
STUB void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*,
                                 dim3*, int*) {
  std::lock_guard<std::mutex> guard(state().lock);
  state().kernels[function] = name;
}

namespace {
struct LaunchConfiguration {
  dim3 grid, block;
  std::size_t shared_memory;
  void* stream;
};
thread_local LaunchConfiguration pushed[8];
thread_local int pushed_count = 0;
}  // namespace

STUB unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_memory, void* stream) {
  pushed[pushed_count++] = {grid, block, shared_memory, stream};
  return 0;
}
STUB cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_memory, void* stream) {
  const LaunchConfiguration& top = pushed[--pushed_count];
  *grid = top.grid;
  *block = top.block;
  *shared_memory = top.shared_memory;
  *static_cast<void**>(stream) = top.stream;
  return cudaSuccess;
}
STUB cudaError_t __cudaGetKernel(void** kernel, const void* function) {
  *kernel = const_cast<void*>(function);
  return cudaSuccess;
}
STUB cudaError_t __cudaLaunchKernel(void* function, dim3 grid, dim3 block, void**, std::size_t shared, void*) {
  return launch(function, grid, block, shared);
}
STUB cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void**, std::size_t shared,
                                  cudaStream_t) {
  return launch(function, grid, block, shared);
}
STUB cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void**, std::size_t shared,
                                             cudaStream_t) {
  return launch(function, grid, block, shared);
}
STUB cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void**) {
  return launch(function, config->gridDim, config->blockDim, config->dynamicSmemBytes);
}

// Errors.
STUB cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
STUB cudaError_t cudaPeekAtLastError() { return last_error; }

// The device and its functions.
STUB cudaError_t cudaGetDeviceCount(int* count) {
  *count = std::getenv("CUDA_STUB_OLD_DRIVER") ? 0 : 1;
  return *count ? cudaSuccess : fail(cudaErrorInsufficientDriver);
}
STUB cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
STUB cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : fail(cudaErrorInvalidDevice); }
STUB cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
STUB cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
STUB cudaError_t cudaGetDeviceProperties(cudaDeviceProp* device, int) {
  std::memset(device, 0, sizeof *device);
  std::strcpy(device->name, "no GPU: cuda-stub");
  device->totalGlobalMem = total_memory();
  device->major = capability() / 10;
  device->minor = capability() % 10;
  device->multiProcessorCount = processors();
  device->warpSize = 32;
  device->regsPerBlock = device->regsPerMultiprocessor = 65536;
  device->maxThreadsPerBlock = 1024;
  device->maxThreadsPerMultiProcessor = 2048;
  device->maxThreadsDim[0] = device->maxThreadsDim[1] = 1024;
  device->maxThreadsDim[2] = 64;
  device->maxGridSize[0] = 2147483647;
  device->maxGridSize[1] = device->maxGridSize[2] = 65535;
  device->sharedMemPerBlock = 49152;
  device->sharedMemPerBlockOptin = shared_memory_per_block();
  device->sharedMemPerMultiprocessor = shared_memory_per_processor();
  device->l2CacheSize = 50 << 20;
  device->textureAlignment = 512;
  device->concurrentKernels = device->unifiedAddressing = device->cooperativeLaunch = 1;
  return cudaSuccess;
}
STUB cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX: *value = 2147483647; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMultiProcessorCount: *value = processors(); break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrL2CacheSize: *value = 50 << 20; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 49152; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = shared_memory_per_block(); break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = shared_memory_per_processor(); break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
    case cudaDevAttrComputeCapabilityMajor: *value = capability() / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = capability() % 10; break;
    case cudaDevAttrCooperativeLaunch: *value = 1; break;
    default: *value = 0;
  }
  return cudaSuccess;
}
STUB cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return cudaSuccess;
}
STUB cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int) {
  std::snprintf(id, size, "0000:00:00.0");
  return cudaSuccess;
}
STUB cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
STUB cudaError_t cudaDeviceSynchronize() {
  record::end_section();
  return cudaSuccess;
}
STUB cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = capability();
  attributes->maxDynamicSharedSizeBytes = 49152;
  return cudaSuccess;
}
STUB cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int value) {
  return value <= shared_memory_per_block() ? cudaSuccess : fail(cudaErrorInvalidValue);
}
STUB cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads, std::size_t) {
  *blocks = 2048 / (threads > 0 ? threads : 2048);
  return cudaSuccess;
}
STUB cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int threads,
                                                                        std::size_t shared, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

// Memory. The driver gives out pages of 2 MiB.
STUB cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  constexpr std::size_t page = 2 << 20;
  const std::size_t rounded = (bytes + page - 1) / page * page;
  std::lock_guard<std::mutex> guard(state().lock);
  if (state().used + rounded > total_memory()) return fail(cudaErrorMemoryAllocation);
  void* block = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block == MAP_FAILED) return fail(cudaErrorMemoryAllocation);
  state().blocks[block] = rounded;
  state().used += rounded;
  record::memory(state().used);
  *pointer = block;
  return cudaSuccess;
}
STUB cudaError_t cudaFree(void* pointer) {
  std::lock_guard<std::mutex> guard(state().lock);
  const auto block = state().blocks.find(pointer);
  if (block == state().blocks.end()) return cudaSuccess;
  munmap(pointer, block->second);
  state().used -= block->second;
  state().blocks.erase(block);
  record::memory(state().used);
  return cudaSuccess;
}
STUB cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  *pointer = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *pointer ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}
STUB cudaError_t cudaFreeHost(void* pointer) {
  std::free(pointer);
  return cudaSuccess;
}
STUB cudaError_t cudaMemGetInfo(std::size_t* unused, std::size_t* total) {
  std::lock_guard<std::mutex> guard(state().lock);
  *total = total_memory();
  *unused = *total - state().used;
  return cudaSuccess;
}
STUB cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  std::memset(attributes, 0, sizeof *attributes);
  const char* address = static_cast<const char*>(pointer);
  std::lock_guard<std::mutex> guard(state().lock);
  for (const auto& [block, bytes] : state().blocks) {
    const char* begin = static_cast<const char*>(block);
    if (address >= begin && address < begin + bytes) attributes->type = cudaMemoryTypeDevice;
  }
  attributes->devicePointer = attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}
STUB cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind,
                                 cudaStream_t) {
  copy(target, source, bytes, kind);
  return cudaSuccess;
}
STUB cudaError_t cudaMemcpy(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind) {
  copy(target, source, bytes, kind);
  return cudaSuccess;
}
STUB cudaError_t cudaMemcpy2DAsync(void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t,
                                   cudaMemcpyKind, cudaStream_t) {
  return cudaSuccess;
}
STUB cudaError_t cudaMemset(void*, int, std::size_t) { return cudaSuccess; }
STUB cudaError_t cudaMemsetAsync(void*, int, std::size_t, cudaStream_t) { return cudaSuccess; }
STUB cudaError_t cudaGetSymbolAddress(void** pointer, const void*) {
  static char symbol[4096];
  *pointer = symbol;
  return cudaSuccess;
}
STUB cudaError_t cudaMemcpyToSymbol(const void*, const void*, std::size_t, std::size_t, cudaMemcpyKind) {
  return cudaSuccess;
}

// Streams and events: everything has ended as soon as it begins.
STUB cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  static long streams = 16;
  *stream = reinterpret_cast<cudaStream_t>(++streams);
  return cudaSuccess;
}
STUB cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
STUB cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreateWithPriority(stream, 0, 0);
}
STUB cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
STUB cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
STUB cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
STUB cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
STUB cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
STUB cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* status, unsigned long long* id,
                                          cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**,
                                          std::size_t*) {
  *status = cudaStreamCaptureStatusNone;
  if (id) *id = 0;
  return cudaSuccess;
}
STUB cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
STUB cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(8);
  return cudaSuccess;
}
STUB cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
STUB cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
STUB cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
STUB cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t, unsigned) { return cudaSuccess; }
STUB cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
STUB cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }

// The driver's functions that libtorch requests by name: each succeeds and does nothing.
STUB cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned, unsigned long long,
                                                  cudaDriverEntryPointQueryResult* result) {
  static int (*nothing)() = [] { return 0; };
  *function = reinterpret_cast<void*>(nothing);
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
