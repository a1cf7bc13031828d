// cuBLAS without a device: a product is recorded, and computes nothing.
#include <cublasLt.h>
#include <cublas_v2.h>

#include <cstring>

#include "record.h"

#define STUB extern "C" __attribute__((visibility("default")))

namespace {
void* const handle = reinterpret_cast<void*>(64);
cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
}  // namespace

STUB cublasStatus_t cublasCreate_v2(cublasHandle_t* out) {
  *out = static_cast<cublasHandle_t>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
STUB cublasStatus_t cublasDestroy_v2(cublasHandle_t) { return CUBLAS_STATUS_SUCCESS; }
STUB cublasStatus_t cublasSetStream_v2(cublasHandle_t, cudaStream_t) { return CUBLAS_STATUS_SUCCESS; }
STUB cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, size_t) { return CUBLAS_STATUS_SUCCESS; }
STUB cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t, cublasPointerMode_t) { return CUBLAS_STATUS_SUCCESS; }
STUB cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t, cublasPointerMode_t* mode) {
  *mode = CUBLAS_POINTER_MODE_HOST;
  return CUBLAS_STATUS_SUCCESS;
}
STUB cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t mode) {
  math_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}
STUB cublasStatus_t cublasGetMathMode(cublasHandle_t, cublasMath_t* mode) {
  *mode = math_mode;
  return CUBLAS_STATUS_SUCCESS;
}

STUB cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k, const void*,
                                 const void*, cudaDataType, int, const void*, cudaDataType, int, const void*, void*,
                                 cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t) {
  record::product(m, n, k, 1);
  return CUBLAS_STATUS_SUCCESS;
}
STUB cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n,
                                               int k, const void*, const void*, cudaDataType, int, long long int,
                                               const void*, cudaDataType, int, long long int, const void*, void*,
                                               cudaDataType, int, long long int, int batch, cublasComputeType_t,
                                               cublasGemmAlgo_t) {
  record::product(m, n, k, batch);
  return CUBLAS_STATUS_SUCCESS;
}
STUB cublasStatus_t cublasSgemm_v2(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                                   const float*, const float*, int, const float*, int, const float*, float*, int) {
  record::product(m, n, k, 1);
  return CUBLAS_STATUS_SUCCESS;
}
STUB cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                                              const float*, const float*, int, long long int, const float*, int,
                                              long long int, const float*, float*, int, long long int, int batch) {
  record::product(m, n, k, batch);
  return CUBLAS_STATUS_SUCCESS;
}
STUB cublasStatus_t cublasSgemv_v2(cublasHandle_t, cublasOperation_t, int m, int n, const float*, const float*, int,
                                   const float*, int, const float*, float*, int) {
  record::product(m, n, 1, 1);
  return CUBLAS_STATUS_SUCCESS;
}
