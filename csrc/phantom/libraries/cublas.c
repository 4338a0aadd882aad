/* cuBLAS and cuBLASLt: handles and settings work; products are not computed. */
#include "phantom.h"

#include <string.h>

typedef struct {
    int math_mode;
    int pointer_mode;
} cublas_modes;

/* A thread sets and reads the modes in turn.  Per thread is enough, although cuBLAS
 * keeps them per handle. */
static _Thread_local cublas_modes modes;

/* usage.c has the measurement. */
#define HANDLE_BYTES (66 * ML_MIB)
#define ALLOC_FAILED 3 /* of cublasStatus_t */

ML_EXPORT(int, cublasCreate_v2, (void **handle))
{
    *handle = ml_library_new(HANDLE_BYTES);
    return *handle != NULL ? 0 : ALLOC_FAILED;
}

ML_EXPORT(int, cublasDestroy_v2, (void *handle))
{
    ml_library_free(handle);
    return 0;
}

ML_EXPORT(int, cublasSetMathMode, (void *handle, int mode))
{
    (void)handle;
    modes.math_mode = mode;
    return 0;
}

ML_EXPORT(int, cublasGetMathMode, (void *handle, int *mode))
{
    (void)handle;
    *mode = modes.math_mode;
    return 0;
}

ML_EXPORT(int, cublasSetPointerMode_v2, (void *handle, int mode))
{
    (void)handle;
    modes.pointer_mode = mode;
    return 0;
}

ML_EXPORT(int, cublasGetPointerMode_v2, (void *handle, int *mode))
{
    (void)handle;
    *mode = modes.pointer_mode;
    return 0;
}

ML_SUCCEED(cublasSetStream_v2)
ML_SUCCEED(cublasSetWorkspace_v2)
ML_SUCCEED(cublasSetSmCountTarget)
ML_SUCCEED(cublasSetAtomicsMode)

/* The products and solvers that torch calls, in the four types. */
#define FOR_TYPES(XX, name) \
    XX(cublasS##name) \
    XX(cublasD##name) \
    XX(cublasC##name) \
    XX(cublasZ##name)

FOR_TYPES(ML_SUCCEED, gemm_v2)
FOR_TYPES(ML_SUCCEED, gemv_v2)
FOR_TYPES(ML_SUCCEED, gemmBatched)
FOR_TYPES(ML_SUCCEED, gemmStridedBatched)
FOR_TYPES(ML_SUCCEED, axpy_v2)
FOR_TYPES(ML_SUCCEED, copy_v2)
FOR_TYPES(ML_SUCCEED, scal_v2)
FOR_TYPES(ML_SUCCEED, trmm_v2)
FOR_TYPES(ML_SUCCEED, trsm_v2)
FOR_TYPES(ML_SUCCEED, trsmBatched)
FOR_TYPES(ML_SUCCEED, getrfBatched)
/* These report on the host whether their arguments are valid. */
#define GEQRF_BATCHED(name) \
    ML_EXPORT(int, name, \
              (void *handle, int m, int n, void *a, int lda, void *tau, int *info)) \
    { \
        (void)handle, (void)m, (void)n, (void)a, (void)lda, (void)tau; \
        *info = 0; \
        return 0; \
    }
#define GETRS_BATCHED(name) \
    ML_EXPORT(int, name, \
              (void *handle, int trans, int n, int nrhs, void *a, int lda, \
               void *pivots, void *b, int ldb, int *info)) \
    { \
        (void)handle, (void)trans, (void)n, (void)nrhs, (void)a, (void)lda; \
        (void)pivots, (void)b, (void)ldb; \
        *info = 0; \
        return 0; \
    }
#define GELS_BATCHED(name) \
    ML_EXPORT(int, name, \
              (void *handle, int trans, int m, int n, int nrhs, void *a, int lda, \
               void *c, int ldc, int *info)) \
    { \
        (void)handle, (void)trans, (void)m, (void)n, (void)nrhs, (void)a, (void)lda; \
        (void)c, (void)ldc; \
        *info = 0; \
        return 0; \
    }

FOR_TYPES(GEQRF_BATCHED, geqrfBatched)
FOR_TYPES(GETRS_BATCHED, getrsBatched)
FOR_TYPES(GELS_BATCHED, gelsBatched)

ML_SUCCEED(cublasSdot_v2)
ML_SUCCEED(cublasDdot_v2)
ML_SUCCEED(cublasCdotu_v2)
ML_SUCCEED(cublasCdotc_v2)
ML_SUCCEED(cublasZdotu_v2)
ML_SUCCEED(cublasZdotc_v2)
ML_SUCCEED(cublasDotEx)
ML_SUCCEED(cublasSgemmEx)

/* 16-bit products, at 600 TFLOP/s or a third of that (clock.c). */
ML_EXPORT(int, cublasGemmEx,
          (void *handle, int transpose_a, int transpose_b, int m, int n, int k,
           const void *alpha, const void *a, int a_type, int a_pitch, const void *b,
           int b_type, int b_pitch, const void *beta, void *c, int c_type, int c_pitch))
{
    enum {
        HALF = 2,
        BFLOAT16 = 14
    }; /* cudaDataType_t */
    double nanoseconds = 2.0 * m * n * k / 600e3;
    bool aligned = a_pitch % 8 == 0 && b_pitch % 8 == 0 && c_pitch % 8 == 0;

    (void)handle, (void)transpose_a, (void)transpose_b, (void)alpha, (void)a, (void)b;
    (void)b_type, (void)beta, (void)c, (void)c_type;
    if (a_type == HALF || a_type == BFLOAT16) {
        ml_clock_spend((unsigned long long)(aligned ? nanoseconds : 3 * nanoseconds));
    }
    ml_clock_spend(5000);
    return 0;
}

ML_SUCCEED(cublasGemmBatchedEx)
ML_SUCCEED(cublasGemmStridedBatchedEx)

/* --- cuBLASLt ---------------------------------------------------------------------- */

ML_EXPORT(int, cublasLtCreate, (void **handle))
{
    *handle = ml_phantom_handle();
    return 0;
}

ML_EXPORT(int, cublasLtMatmulDescCreate, (void **descriptor))
{
    *descriptor = ml_phantom_handle();
    return 0;
}

ML_EXPORT(int, cublasLtMatrixLayoutCreate, (void **layout))
{
    *layout = ml_phantom_handle();
    return 0;
}

ML_EXPORT(int, cublasLtMatmulPreferenceCreate, (void **preference))
{
    *preference = ml_phantom_handle();
    return 0;
}

/* cublasLtMatmulHeuristicResult_t: the algorithm, the workspace's size, the state,
 * the waves and room for more. */
typedef struct {
    unsigned long long algorithm[8];
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
} lt_heuristic;

/* One algorithm, without a workspace: torch has allocated one of its own fixed size
 * before it asks. */
ML_EXPORT(int, cublasLtMatmulAlgoGetHeuristic,
          (void *handle, void *operation, void *a, void *b, void *c, void *d,
           void *preference, int requested, lt_heuristic *results, int *found))
{
    (void)handle;
    (void)operation;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    (void)preference;
    *found = requested > 0;
    if (requested > 0) {
        memset(results, 0, sizeof *results);
    }
    return 0;
}

ML_EXPORT(size_t, cublasLtGetVersion, (void))
{
    return (size_t)(ml_phantom_cuda_version() / 1000) * 10000;
}

ML_SUCCEED(cublasLtDestroy)
ML_SUCCEED(cublasLtMatmul)
ML_SUCCEED(cublasLtMatmulDescDestroy)
ML_SUCCEED(cublasLtMatmulDescSetAttribute)
ML_SUCCEED(cublasLtMatrixLayoutDestroy)
ML_SUCCEED(cublasLtMatrixLayoutSetAttribute)
ML_SUCCEED(cublasLtMatmulPreferenceDestroy)
ML_SUCCEED(cublasLtMatmulPreferenceSetAttribute)
