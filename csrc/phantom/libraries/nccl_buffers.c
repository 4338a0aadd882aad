/* NCCL's operators, buffers and windows: their memory is the program's, and nothing is
 * computed. */
#include "libraries/nccl.h"

ML_EXPORT(int, ncclRedOpCreatePreMulSum, (int *op))
{
    *op = 5; /* the first that is not built in */
    return ML_NCCL_OK;
}

ML_SUCCEED(ncclRedOpDestroy)

ML_EXPORT(int, ncclMemAlloc, (void **pointer, size_t bytes))
{
    return ml_phantom_malloc(pointer, bytes, ml_phantom_device()) == ML_CUDA_Success
               ? ML_NCCL_OK
               : ml_nccl_out_of_memory();
}

ML_EXPORT(int, ncclMemFree, (void *pointer))
{
    return ml_phantom_free(pointer) == ML_CUDA_Success
               ? ML_NCCL_OK
               : ml_nccl_fail(ML_NCCL_INVALID_ARGUMENT,
                              "Not allocated by ncclMemAlloc");
}

ML_EXPORT(int, ncclCommRegister,
          (const ml_nccl_comm *comm, void *buffer, size_t bytes, void **handle))
{
    (void)comm, (void)buffer, (void)bytes;
    *handle = ml_phantom_handle();
    return ML_NCCL_OK;
}

ML_SUCCEED(ncclCommDeregister)

ML_EXPORT(int, ncclCommWindowRegister,
          (const ml_nccl_comm *comm, void *buffer, size_t bytes, void **window))
{
    (void)comm, (void)buffer, (void)bytes;
    *window = ml_phantom_handle();
    return ML_NCCL_OK;
}

ML_SUCCEED(ncclCommWindowDeregister)
