// The functions of the CUDA driver (libcuda.so.1) that libtorch looks up when its first tensor is made.
#define STUB extern "C" __attribute__((visibility("default")))

STUB int cuInit(unsigned) { return 0; }
STUB int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
STUB int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return 0;
}
STUB int cuCtxGetCurrent(void** context) {
  *context = reinterpret_cast<void*>(1);
  return 0;
}
STUB int cuCtxSetCurrent(void*) { return 0; }
