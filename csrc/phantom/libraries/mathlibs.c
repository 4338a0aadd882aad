/* cuFFT, cuSOLVER, cuSPARSE and CUPTI, as far as torch's common modules use them.
 *
 * Decompositions and transforms compute nothing.  Each has a rule for its workspace,
 * written beside it; workspaces are small compared with the tensors. */
#include "phantom.h"

#define CREATE(name) \
    ML_EXPORT(int, name, (void **made)) \
    { \
        *made = ml_phantom_handle(); \
        return 0; \
    }

/* The same name in the four types. */
#define FOR_TYPES(XX, library, name) \
    XX(library##S##name) \
    XX(library##D##name) \
    XX(library##C##name) \
    XX(library##Z##name)

/* --- cuFFT ------------------------------------------------------------------------------- */

ML_EXPORT(int, cufftCreate, (int *plan))
{
    static int next;

    *plan = __atomic_add_fetch(&next, 1, __ATOMIC_RELAXED);
    return 0;
}

/* Rule: a plan works in place, as cuFFT does for sizes of small prime factors. */
ML_EXPORT(int, cufftXtMakePlanMany,
          (int plan, int rank, long long *n, long long *inembed, long long istride,
           long long idist, int input, long long *onembed, long long ostride,
           long long odist, int output, long long batch, size_t *workspace))
{
    (void)plan, (void)rank, (void)n, (void)inembed, (void)istride, (void)idist;
    (void)input, (void)onembed, (void)ostride, (void)odist, (void)output, (void)batch;
    *workspace = 0;
    return 0;
}

ML_SUCCEED(cufftDestroy)
ML_SUCCEED(cufftSetAutoAllocation)
ML_SUCCEED(cufftSetStream)
ML_SUCCEED(cufftSetWorkArea)
ML_SUCCEED(cufftXtExec)

/* --- cuSOLVER ---------------------------------------------------------------------------- */

CREATE(cusolverDnCreate)
CREATE(cusolverDnCreateParams)
CREATE(cusolverDnCreateGesvdjInfo)
CREATE(cusolverDnCreateSyevjInfo)
ML_SUCCEED(cusolverDnDestroy)
ML_SUCCEED(cusolverDnDestroyParams)
ML_SUCCEED(cusolverDnDestroyGesvdjInfo)
ML_SUCCEED(cusolverDnDestroySyevjInfo)
ML_SUCCEED(cusolverDnSetStream)
ML_SUCCEED(cusolverDnXgesvdjSetMaxSweeps)
ML_SUCCEED(cusolverDnXgesvdjSetSortEig)
ML_SUCCEED(cusolverDnXgesvdjSetTolerance)
ML_SUCCEED(cusolverDnXsyevjSetSortEig)

/* Rule: a solver's workspace has the size of its m by n matrix.  These functions differ
 * in the places of the sizes and of the result. */

static int
matrix_elements(int rows, int columns, int *elements)
{
    long long product = (long long)rows * columns;

    *elements = product < 1 ? 1 : product > 2147483647 ? 2147483647 : (int)product;
    return 0;
}

/* (handle, m, n, ..., answer after `k` further arguments) */
#define BUFFER_MN_2(name) /* A, lda: getrf and geqrf */ \
    ML_EXPORT(int, name, \
              (void *handle, int m, int n, void *a, int lda, int *elements)) \
    { \
        (void)handle, (void)a, (void)lda; \
        return matrix_elements(m, n, elements); \
    }
#define BUFFER_MN(name) /* gesvd */ \
    ML_EXPORT(int, name, (void *handle, int m, int n, int *elements)) \
    { \
        (void)handle; \
        return matrix_elements(m, n, elements); \
    }
#define BUFFER_POTRF(name) /* uplo, n, A, lda */ \
    ML_EXPORT(int, name, \
              (void *handle, int uplo, int n, void *a, int lda, int *elements)) \
    { \
        (void)handle, (void)uplo, (void)a, (void)lda; \
        return matrix_elements(n, n, elements); \
    }
#define BUFFER_SYTRF(name) /* n, A, lda */ \
    ML_EXPORT(int, name, (void *handle, int n, void *a, int lda, int *elements)) \
    { \
        (void)handle, (void)a, (void)lda; \
        return matrix_elements(n, n, elements); \
    }
#define BUFFER_ORGQR(name) /* m, n, k, A, lda, tau */ \
    ML_EXPORT(int, name, \
              (void *handle, int m, int n, int k, void *a, int lda, void *tau, \
               int *elements)) \
    { \
        (void)handle, (void)k, (void)a, (void)lda, (void)tau; \
        return matrix_elements(m, n, elements); \
    }
#define BUFFER_ORMQR(name) /* side, trans, m, n, k, A, lda, tau, C, ldc */ \
    ML_EXPORT(int, name, \
              (void *handle, int side, int trans, int m, int n, int k, void *a, \
               int lda, void *tau, void *c, int ldc, int *elements)) \
    { \
        (void)handle, (void)side, (void)trans, (void)k, (void)a, (void)lda; \
        (void)tau, (void)c, (void)ldc; \
        return matrix_elements(m, n, elements); \
    }
#define BUFFER_SYEVD(name) /* jobz, uplo, n, A, lda, W (and more) */ \
    ML_EXPORT(int, name, \
              (void *handle, int jobz, int uplo, int n, void *a, int lda, void *w, \
               int *elements)) \
    { \
        (void)handle, (void)jobz, (void)uplo, (void)a, (void)lda, (void)w; \
        return matrix_elements(n, n, elements); \
    }
#define BUFFER_GESVDJ(name) /* jobz, econ, m, n, A, lda, S, U, ldu, V, ldv */ \
    ML_EXPORT(int, name, \
              (void *handle, int jobz, int econ, int m, int n, void *a, int lda, \
               void *s, void *u, int ldu, void *v, int ldv, int *elements)) \
    { \
        (void)handle, (void)jobz, (void)econ, (void)a, (void)lda, (void)s; \
        (void)u, (void)ldu, (void)v, (void)ldv; \
        return matrix_elements(m, n, elements); \
    }
#define BUFFER_GESVDJ_BATCHED(name) /* jobz, m, n, A, lda, S, U, ldu, V, ldv */ \
    ML_EXPORT(int, name, \
              (void *handle, int jobz, int m, int n, void *a, int lda, void *s, \
               void *u, int ldu, void *v, int ldv, int *elements)) \
    { \
        (void)handle, (void)jobz, (void)a, (void)lda, (void)s, (void)u, (void)ldu; \
        (void)v, (void)ldv; \
        return matrix_elements(m, n, elements); \
    }
/* jobz, rank, m, n, A, lda, strideA, S, strideS, U, ldu, strideU, V, ldv, strideV */
#define BUFFER_GESVDA(name) \
    ML_EXPORT(int, name, \
              (void *handle, int jobz, int rank, int m, int n, void *a, int lda, \
               long long stride_a, void *s, long long stride_s, void *u, int ldu, \
               long long stride_u, void *v, int ldv, long long stride_v, \
               int *elements)) \
    { \
        (void)handle, (void)jobz, (void)rank, (void)a, (void)lda, (void)stride_a; \
        (void)s, (void)stride_s, (void)u, (void)ldu, (void)stride_u, (void)v; \
        (void)ldv, (void)stride_v; \
        return matrix_elements(m, n, elements); \
    }

FOR_TYPES(BUFFER_MN_2, cusolverDn, getrf_bufferSize)
FOR_TYPES(BUFFER_MN_2, cusolverDn, geqrf_bufferSize)
FOR_TYPES(BUFFER_MN, cusolverDn, gesvd_bufferSize)
FOR_TYPES(BUFFER_POTRF, cusolverDn, potrf_bufferSize)
FOR_TYPES(BUFFER_SYTRF, cusolverDn, sytrf_bufferSize)
FOR_TYPES(BUFFER_GESVDJ, cusolverDn, gesvdj_bufferSize)
FOR_TYPES(BUFFER_GESVDJ_BATCHED, cusolverDn, gesvdjBatched_bufferSize)
FOR_TYPES(BUFFER_GESVDA, cusolverDn, gesvdaStridedBatched_bufferSize)
BUFFER_ORGQR(cusolverDnSorgqr_bufferSize)
BUFFER_ORGQR(cusolverDnDorgqr_bufferSize)
BUFFER_ORGQR(cusolverDnCungqr_bufferSize)
BUFFER_ORGQR(cusolverDnZungqr_bufferSize)
BUFFER_ORMQR(cusolverDnSormqr_bufferSize)
BUFFER_ORMQR(cusolverDnDormqr_bufferSize)
BUFFER_ORMQR(cusolverDnCunmqr_bufferSize)
BUFFER_ORMQR(cusolverDnZunmqr_bufferSize)

/* Eigenvalues of symmetric matrices: syev for real types, heev for complex. */
#define FOR_SYMMETRIC(XX, name) \
    XX(cusolverDnSsy##name) \
    XX(cusolverDnDsy##name) \
    XX(cusolverDnChe##name) \
    XX(cusolverDnZhe##name)

FOR_SYMMETRIC(BUFFER_SYEVD, evd_bufferSize)
FOR_SYMMETRIC(BUFFER_SYEVD, evj_bufferSize)
FOR_SYMMETRIC(BUFFER_SYEVD, evjBatched_bufferSize)

FOR_SYMMETRIC(ML_SUCCEED, evd)
FOR_SYMMETRIC(ML_SUCCEED, evj)
FOR_SYMMETRIC(ML_SUCCEED, evjBatched)
FOR_TYPES(ML_SUCCEED, cusolverDn, getrf)
FOR_TYPES(ML_SUCCEED, cusolverDn, getrs)
FOR_TYPES(ML_SUCCEED, cusolverDn, geqrf)
FOR_TYPES(ML_SUCCEED, cusolverDn, gesvd)
FOR_TYPES(ML_SUCCEED, cusolverDn, gesvdj)
FOR_TYPES(ML_SUCCEED, cusolverDn, gesvdjBatched)
FOR_TYPES(ML_SUCCEED, cusolverDn, gesvdaStridedBatched)
FOR_TYPES(ML_SUCCEED, cusolverDn, potrf)
FOR_TYPES(ML_SUCCEED, cusolverDn, potrfBatched)
FOR_TYPES(ML_SUCCEED, cusolverDn, potrs)
FOR_TYPES(ML_SUCCEED, cusolverDn, potrsBatched)
FOR_TYPES(ML_SUCCEED, cusolverDn, sytrf)
ML_SUCCEED(cusolverDnSorgqr)
ML_SUCCEED(cusolverDnDorgqr)
ML_SUCCEED(cusolverDnCungqr)
ML_SUCCEED(cusolverDnZungqr)
ML_SUCCEED(cusolverDnSormqr)
ML_SUCCEED(cusolverDnDormqr)
ML_SUCCEED(cusolverDnCunmqr)
ML_SUCCEED(cusolverDnZunmqr)

/* The 64-bit API returns bytes, for the device and for the host.  Its elements have at
 * most 16 bytes. */
static int
matrix_bytes(int64_t rows, int64_t columns, size_t *device, size_t *host)
{
    *device = (size_t)(rows * columns) * 16;
    *host = 0;
    return 0;
}

ML_EXPORT(int, cusolverDnXpotrf_bufferSize,
          (void *handle, void *params, int uplo, int64_t n, int type, void *a,
           int64_t lda, int compute, size_t *device, size_t *host))
{
    (void)handle, (void)params, (void)uplo, (void)type, (void)a, (void)lda;
    (void)compute;
    return matrix_bytes(n, n, device, host);
}

ML_EXPORT(int, cusolverDnXgeqrf_bufferSize,
          (void *handle, void *params, int64_t m, int64_t n, int type, void *a,
           int64_t lda, int tau_type, void *tau, int compute, size_t *device,
           size_t *host))
{
    (void)handle, (void)params, (void)type, (void)a, (void)lda, (void)tau_type;
    (void)tau, (void)compute;
    return matrix_bytes(m, n, device, host);
}

ML_EXPORT(int, cusolverDnXsyevd_bufferSize,
          (void *handle, void *params, int jobz, int uplo, int64_t n, int type, void *a,
           int64_t lda, int w_type, void *w, int compute, size_t *device, size_t *host))
{
    (void)handle, (void)params, (void)jobz, (void)uplo, (void)type, (void)a;
    (void)lda, (void)w_type, (void)w, (void)compute;
    return matrix_bytes(n, n, device, host);
}

ML_EXPORT(int, cusolverDnXsyevBatched_bufferSize,
          (void *handle, void *params, int jobz, int uplo, int64_t n, int type, void *a,
           int64_t lda, int w_type, void *w, int compute, size_t *device, size_t *host))
{
    (void)handle, (void)params, (void)jobz, (void)uplo, (void)type, (void)a;
    (void)lda, (void)w_type, (void)w, (void)compute;
    return matrix_bytes(n, n, device, host);
}

ML_SUCCEED(cusolverDnXpotrf)
ML_SUCCEED(cusolverDnXpotrs)
ML_SUCCEED(cusolverDnXgeqrf)
ML_SUCCEED(cusolverDnXsyevd)
ML_SUCCEED(cusolverDnXsyevBatched)

/* --- cuSPARSE ---------------------------------------------------------------------------- */

CREATE(cusparseCreate)
CREATE(cusparseCreateCsr)
CREATE(cusparseCreateCoo)
CREATE(cusparseCreateDnMat)
CREATE(cusparseCreateDnVec)
CREATE(cusparseCreateMatDescr)
ML_SUCCEED(cusparseDestroy)
ML_SUCCEED(cusparseDestroySpMat)
ML_SUCCEED(cusparseDestroyDnMat)
ML_SUCCEED(cusparseDestroyDnVec)
ML_SUCCEED(cusparseDestroyMatDescr)
ML_SUCCEED(cusparseSetStream)
ML_SUCCEED(cusparseSetPointerMode)
ML_SUCCEED(cusparseSetMatType)
ML_SUCCEED(cusparseSetMatIndexBase)
ML_SUCCEED(cusparseSetMatFillMode)
ML_SUCCEED(cusparseSetMatDiagType)
ML_SUCCEED(cusparseCsrSetPointers)
ML_SUCCEED(cusparseCsrSetStridedBatch)
ML_SUCCEED(cusparseDnMatSetStridedBatch)
ML_SUCCEED(cusparseSpMatSetAttribute)
ML_SUCCEED(cusparseXcoo2csr)
ML_SUCCEED(cusparseSpMM)
ML_SUCCEED(cusparseSpMV)
ML_SUCCEED(cusparseSDDMM)
ML_SUCCEED(cusparseSDDMM_preprocess)

/* Rule: a product of a sparse and a dense operand works in place. */
#define BUFFER_PRODUCT(name) \
    ML_EXPORT(int, name, \
              (void *handle, int op_a, int op_b, void *alpha, void *a, void *b, \
               void *beta, void *c, int type, int algorithm, size_t *bytes)) \
    { \
        (void)handle, (void)op_a, (void)op_b, (void)alpha, (void)a, (void)b; \
        (void)beta, (void)c, (void)type, (void)algorithm; \
        *bytes = 0; \
        return 0; \
    }

BUFFER_PRODUCT(cusparseSpMM_bufferSize)
BUFFER_PRODUCT(cusparseSDDMM_bufferSize)

ML_EXPORT(int, cusparseSpMV_bufferSize,
          (void *handle, int op, void *alpha, void *a, void *x, void *beta, void *y,
           int type, int algorithm, size_t *bytes))
{
    (void)handle, (void)op, (void)alpha, (void)a, (void)x, (void)beta, (void)y;
    (void)type, (void)algorithm;
    *bytes = 0;
    return 0;
}

ML_EXPORT(const char *, cusparseGetErrorString, (int status))
{
    return status ? "a cuSPARSE error of the phantom device" : "success";
}

/* --- CUPTI --------------------------------------------------------------------------------- */

/* Nothing can be traced.  Each call fails as on a device that CUPTI does not support;
 * torch's profiler reports that and continues. */
enum {
    CUPTI_ERROR_NOT_SUPPORTED = 27
};

#define REFUSE(name) \
    ML_EXPORT(int, name, (void)) \
    { \
        return CUPTI_ERROR_NOT_SUPPORTED; \
    }

REFUSE(cuptiActivityDisable)
REFUSE(cuptiActivityEnable)
REFUSE(cuptiActivityEnableCudaEventDeviceTimestamps)
REFUSE(cuptiActivityEnableDriverApi)
REFUSE(cuptiActivityEnableRuntimeApi)
REFUSE(cuptiActivityFlushAll)
REFUSE(cuptiActivityGetNextRecord)
REFUSE(cuptiActivityGetNumDroppedRecords)
REFUSE(cuptiActivityPopExternalCorrelationId)
REFUSE(cuptiActivityPushExternalCorrelationId)
REFUSE(cuptiActivityRegisterCallbacks)
REFUSE(cuptiActivityRegisterTimestampCallback)
REFUSE(cuptiActivitySetAttribute)
REFUSE(cuptiEnableCallback)
REFUSE(cuptiEnableDomain)
REFUSE(cuptiFinalize)
REFUSE(cuptiGetCallbackName)
REFUSE(cuptiGetDeviceId)
REFUSE(cuptiGetVersion)
REFUSE(cuptiSubscribe)
REFUSE(cuptiUnsubscribe)

ML_EXPORT(int, cuptiGetResultString, (int result, const char **text))
{
    *text = result ? "CUPTI_ERROR_NOT_SUPPORTED" : "CUPTI_SUCCESS";
    return 0;
}
