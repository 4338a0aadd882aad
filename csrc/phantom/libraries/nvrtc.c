/* NVRTC: kernels that torch compiles at run time.  The result is empty. */
#include "phantom.h"

ML_EXPORT(int, nvrtcVersion, (int *major, int *minor))
{
    *major = ml_phantom_cuda_version() / 1000;
    *minor = ml_phantom_cuda_version() / 10 % 100;
    return 0;
}

ML_EXPORT(int, nvrtcCreateProgram, (void **program))
{
    *program = ml_phantom_handle();
    return 0;
}

ML_EXPORT(const char *, nvrtcGetErrorString, (int error))
{
    return error ? "NVRTC error" : "NVRTC_SUCCESS";
}

/* PTX, machine code and log are one empty string each. */
#define TEXT(get_size, get) \
    ML_EXPORT(int, get_size, (void *program, size_t *bytes)) \
    { \
        (void)program; \
        *bytes = 1; \
        return 0; \
    } \
    ML_EXPORT(int, get, (void *program, char *text)) \
    { \
        (void)program; \
        *text = '\0'; \
        return 0; \
    }

TEXT(nvrtcGetPTXSize, nvrtcGetPTX)
TEXT(nvrtcGetCUBINSize, nvrtcGetCUBIN)
TEXT(nvrtcGetProgramLogSize, nvrtcGetProgramLog)

ML_EXPORT(int, nvrtcGetLoweredName,
          (void *program, const char *expression, const char **name))
{
    (void)program;
    *name = expression;
    return 0;
}

ML_SUCCEED(nvrtcAddNameExpression)
ML_SUCCEED(nvrtcCompileProgram)
ML_SUCCEED(nvrtcDestroyProgram)
