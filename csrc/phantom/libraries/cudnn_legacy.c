/* cuDNN's older API, which torch still uses for batch norm, recurrent networks,
 * dropout, CTC loss, pooling, spatial transformers and tensor descriptors. */
#include "phantom.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DIMENSIONS 8

/* A tensor's or a filter's shape. */
typedef struct {
    int type;   /* cudnnDataType_t */
    int format; /* cudnnTensorFormat_t, filters only */
    int dimensions;
    int size[MAX_DIMENSIONS];
    int stride[MAX_DIMENSIONS];
} shape;

static size_t
type_bytes(int type)
{
    switch (type) {
    case 1:  /* double */
    case 10: /* int64 */
        return 8;
    case 2: /* half */
    case 9: /* bfloat16 */
        return 2;
    case 3: /* int8 */
    case 6: /* uint8 */
        return 1;
    default:
        return 4;
    }
}

static int
shape_new(void **descriptor)
{
    *descriptor = calloc(1, sizeof(shape));
    return *descriptor ? 0 : 1;
}

static int
shape_set(shape *set, int type, int format, int dimensions, const int *size,
          const int *stride)
{
    if (dimensions < 0 || dimensions > MAX_DIMENSIONS) {
        return 3; /* CUDNN_STATUS_BAD_PARAM of version 8; any non-zero is an error */
    }
    set->type = type;
    set->format = format;
    set->dimensions = dimensions;
    for (int i = 0; i < dimensions; i++) {
        set->size[i] = size[i];
        set->stride[i] = stride ? stride[i] : 1;
    }
    return 0;
}

ML_EXPORT(int, cudnnCreateTensorDescriptor, (void **descriptor))
{
    return shape_new(descriptor);
}

ML_EXPORT(int, cudnnCreateFilterDescriptor, (void **descriptor))
{
    return shape_new(descriptor);
}

ML_EXPORT(int, cudnnDestroyTensorDescriptor, (void *descriptor))
{
    free(descriptor);
    return 0;
}

ML_EXPORT(int, cudnnDestroyFilterDescriptor, (void *descriptor))
{
    free(descriptor);
    return 0;
}

ML_EXPORT(int, cudnnSetTensorNdDescriptor,
          (shape * set, int type, int dimensions, const int *size, const int *stride))
{
    return shape_set(set, type, 0, dimensions, size, stride);
}

ML_EXPORT(int, cudnnSetFilterNdDescriptor,
          (shape * set, int type, int format, int dimensions, const int *size))
{
    return shape_set(set, type, format, dimensions, size, NULL);
}

ML_EXPORT(int, cudnnGetTensorNdDescriptor,
          (const shape *asked, int requested, int *type, int *dimensions, int *size,
           int *stride))
{
    *type = asked->type;
    *dimensions = asked->dimensions;
    for (int i = 0; i < requested && i < asked->dimensions; i++) {
        size[i] = asked->size[i];
        stride[i] = asked->stride[i];
    }
    return 0;
}

ML_EXPORT(int, cudnnGetFilterNdDescriptor,
          (const shape *asked, int requested, int *type, int *format, int *dimensions,
           int *size))
{
    *type = asked->type;
    *format = asked->format;
    *dimensions = asked->dimensions;
    for (int i = 0; i < requested && i < asked->dimensions; i++) {
        size[i] = asked->size[i];
    }
    return 0;
}

/* --- Descriptors that hold nothing worth keeping -------------------------------------------- */

#define CREATE(name) \
    ML_EXPORT(int, name, (void **descriptor)) \
    { \
        *descriptor = ml_phantom_handle(); \
        return 0; \
    }

CREATE(cudnnCreateConvolutionDescriptor)
CREATE(cudnnCreateActivationDescriptor)
CREATE(cudnnCreatePoolingDescriptor)
CREATE(cudnnCreateDropoutDescriptor)
CREATE(cudnnCreateCTCLossDescriptor)
CREATE(cudnnCreateSpatialTransformerDescriptor)

ML_SUCCEED(cudnnDestroyConvolutionDescriptor)
ML_SUCCEED(cudnnDestroyActivationDescriptor)
ML_SUCCEED(cudnnDestroyPoolingDescriptor)
ML_SUCCEED(cudnnDestroyDropoutDescriptor)
ML_SUCCEED(cudnnDestroyCTCLossDescriptor)
ML_SUCCEED(cudnnDestroySpatialTransformerDescriptor)
ML_SUCCEED(cudnnSetConvolutionNdDescriptor)
ML_SUCCEED(cudnnSetConvolutionGroupCount)
ML_SUCCEED(cudnnSetConvolutionMathType)
ML_SUCCEED(cudnnSetActivationDescriptor)
ML_SUCCEED(cudnnSetPooling2dDescriptor)
ML_SUCCEED(cudnnSetSpatialTransformerNdDescriptor)
ML_SUCCEED(cudnnSetCTCLossDescriptorEx)
ML_SUCCEED(cudnnSetCTCLossDescriptor_v9)

/* --- Batch norm ------------------------------------------------------------------------------- */

ML_SUCCEED(cudnnBatchNormalizationForwardTrainingEx)
ML_SUCCEED(cudnnBatchNormalizationForwardInference)
ML_SUCCEED(cudnnBatchNormalizationBackwardEx)

/* The elements of a tensor in channels-last layout; 0 in another layout. */
static size_t
channels_last_elements(const shape *of)
{
    size_t elements = of->dimensions > 2 && of->stride[1] == 1;

    for (int i = 0; i < of->dimensions; i++) {
        elements *= (size_t)of->size[i];
    }
    return elements;
}

/* Rule, from an H200: for channels-last input a byte per 8 elements forward and per 12
 * backward; else nothing. */
ML_EXPORT(int, cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize,
          (void *handle, int mode, int operations, const shape *x, void *z, void *y,
           void *scale, void *activation, size_t *bytes))
{
    (void)handle, (void)mode, (void)operations, (void)z, (void)y, (void)scale;
    (void)activation;
    *bytes = channels_last_elements(x) / 8;
    return 0;
}

ML_EXPORT(int, cudnnGetBatchNormalizationBackwardExWorkspaceSize,
          (void *handle, int mode, int operations, const shape *x, void *y, void *dy,
           void *dz, void *dx, void *scale, void *activation, size_t *bytes))
{
    (void)handle, (void)mode, (void)operations, (void)y, (void)dy, (void)dz, (void)dx;
    (void)scale, (void)activation;
    *bytes = channels_last_elements(x) / 12;
    return 0;
}

ML_EXPORT(int, cudnnGetBatchNormalizationTrainingExReserveSpaceSize,
          (void *handle, int mode, int operations, void *activation, void *x,
           size_t *bytes))
{
    (void)handle, (void)mode, (void)operations, (void)activation, (void)x;
    *bytes = 0;
    return 0;
}

/* --- Dropout and recurrent networks ----------------------------------------------------------- */

/* The generators' states as in cuDNN: a fixed number of bytes for each thread that the
 * device can hold. */
ML_EXPORT(int, cudnnDropoutGetStatesSize, (void *handle, size_t *bytes))
{
    const ml_phantom_config *config = ml_phantom_configure();

    (void)handle;
    *bytes = (size_t)config->gpu->processors *
             (size_t)config->capability->threads_per_processor * 24;
    return 0;
}

ML_SUCCEED(cudnnSetDropoutDescriptor)
ML_SUCCEED(cudnnRestoreDropoutDescriptor)

typedef struct {
    int mode;       /* cudnnRNNMode_t */
    int bias;       /* cudnnRNNBiasMode_t */
    int directions; /* 1 or 2 */
    int type;       /* cudnnDataType_t */
    int input, hidden, projected;
    int layers;
} network;

typedef struct {
    int steps;
    int batch;
    int features;
} sequence;

ML_EXPORT(int, cudnnCreateRNNDescriptor, (void **descriptor))
{
    *descriptor = calloc(1, sizeof(network));
    return *descriptor ? 0 : 1;
}

ML_EXPORT(int, cudnnDestroyRNNDescriptor, (void *descriptor))
{
    free(descriptor);
    return 0;
}

ML_EXPORT(int, cudnnSetRNNDescriptor_v8,
          (network * set, int algorithm, int mode, int bias, int direction,
           int input_mode, int type, int precision, int math, int input, int hidden,
           int projected, int layers))
{
    (void)algorithm, (void)input_mode, (void)precision, (void)math;
    *set = (network){mode, bias, direction + 1, type, input, hidden, projected, layers};
    return 0;
}

ML_EXPORT(int, cudnnCreateRNNDataDescriptor, (void **descriptor))
{
    *descriptor = calloc(1, sizeof(sequence));
    return *descriptor ? 0 : 1;
}

ML_EXPORT(int, cudnnDestroyRNNDataDescriptor, (void *descriptor))
{
    free(descriptor);
    return 0;
}

ML_EXPORT(int, cudnnSetRNNDataDescriptor,
          (sequence * set, int type, int layout, int steps, int batch, int features))
{
    (void)type, (void)layout;
    *set = (sequence){steps, batch, features};
    return 0;
}

/* The gates of a cell: four for LSTM, three for GRU, else one. */
static int
gates(const network *of)
{
    return of->mode == 2 ? 4 : of->mode == 3 ? 3 : 1;
}

/* The matrices of a cell in cuDNN's order: the gates of the input, the gates of the
 * hidden state, the projection.  Writes the shape of the requested one and returns the
 * elements of all before it.  The number after the last gives the whole. */
static size_t
matrices_before(const network *of, int pseudo_layer, int number, int *rows,
                int *columns)
{
    int layer = pseudo_layer / of->directions;
    int output = of->projected ? of->projected : of->hidden;
    int input = layer == 0 ? of->input : output * of->directions;
    size_t before = 0;

    for (int i = 0;; i++) {
        bool is_projection = i == 2 * gates(of);

        *rows = is_projection ? output : of->hidden;
        *columns = is_projection ? of->hidden : i < gates(of) ? input : output;
        if (i == number) {
            return before;
        }
        before += (size_t)*rows * (size_t)*columns;
    }
}

static int
matrix_count(const network *of)
{
    bool projects = of->projected != 0 && of->projected != of->hidden;

    return 2 * gates(of) + (projects ? 1 : 0);
}

static size_t
bias_sets(const network *of)
{
    return of->bias == 0 ? 0 : of->bias == 2 ? 2 : 1;
}

/* All matrices of all layers come first, then all biases. */
static size_t
weights(const network *of, int pseudo_layers)
{
    size_t elements = 0;
    int rows, columns;

    for (int i = 0; i < pseudo_layers; i++) {
        elements += matrices_before(of, i, matrix_count(of), &rows, &columns);
    }
    return elements;
}

static size_t
biases(const network *of, int pseudo_layers)
{
    return (size_t)pseudo_layers * bias_sets(of) * (size_t)gates(of) *
           (size_t)of->hidden;
}

ML_EXPORT(int, cudnnGetRNNWeightSpaceSize,
          (void *handle, const network *of, size_t *bytes))
{
    int all = of->layers * of->directions;

    (void)handle;
    *bytes = (weights(of, all) + biases(of, all)) * type_bytes(of->type);
    return 0;
}

ML_EXPORT(int, cudnnGetRNNWeightParams,
          (void *handle, const network *of, int pseudo_layer, size_t space_bytes,
           char *space, int number, shape *matrix, char **matrix_at, shape *bias,
           char **bias_at))
{
    size_t width = type_bytes(of->type);
    int rows, columns;

    (void)handle, (void)space_bytes;
    /* The caller asks for the matrix or for the bias, with NULL for the other. */
    if (matrix_at != NULL) {
        *matrix_at = NULL;
    }
    if (bias_at != NULL) {
        *bias_at = NULL;
    }
    if (matrix_at != NULL && number < matrix_count(of)) {
        size_t before = weights(of, pseudo_layer) +
                        matrices_before(of, pseudo_layer, number, &rows, &columns);
        *matrix_at = space + before * width;
        shape_set(matrix, of->type, 0, 3, (int[]){1, rows, columns},
                  (int[]){rows * columns, columns, 1});
    }
    if (bias_at != NULL && number < (int)bias_sets(of) * gates(of)) {
        size_t before = weights(of, of->layers * of->directions) +
                        biases(of, pseudo_layer) + (size_t)number * (size_t)of->hidden;
        *bias_at = space + before * width;
        shape_set(bias, of->type, 0, 3, (int[]){1, of->hidden, 1},
                  (int[]){of->hidden, 1, 1});
    }
    return 0;
}

/* The rule, from cuDNN 9.19's requests on an H200.  In units of one layer's output over
 * all steps, the reserve has 6 per layer for LSTM, 7 for GRU and 2 for plain networks,
 * minus one; this equals the measurement.  The workspace has the gates and one unit
 * (three with several layers), the weights and 10 MiB.  It is from 40 % of the measured
 * workspace, for plain and bidirectional networks, to 10 % above. */
ML_EXPORT(int, cudnnGetRNNTempSpaceSizes,
          (void *handle, const network *of, int training, const sequence *input,
           size_t *workspace, size_t *reserve))
{
    size_t unit = (size_t)input->steps * (size_t)input->batch * (size_t)of->hidden *
                  (size_t)of->directions * type_bytes(of->type);
    size_t layers = (size_t)of->layers;
    size_t kept = of->mode == 2 ? 6 : of->mode == 3 ? 7 : 2;
    size_t weight_bytes;

    cudnnGetRNNWeightSpaceSize(handle, of, &weight_bytes);
    if (workspace != NULL) {
        *workspace = unit * ((size_t)gates(of) + (layers > 1 ? 3 : 1)) + weight_bytes +
                     10 * ML_MIB;
    }
    if (reserve != NULL) {
        *reserve = training ? unit * (kept * layers - 1) + 256 : 0;
    }
    return 0;
}

ML_SUCCEED(cudnnRNNForward)
ML_SUCCEED(cudnnRNNBackwardData_v8)
ML_SUCCEED(cudnnRNNBackwardWeights_v8)

/* --- The rest ------------------------------------------------------------------------------------ */

ML_SUCCEED(cudnnPoolingForward)
ML_SUCCEED(cudnnSpatialTfGridGeneratorForward)
ML_SUCCEED(cudnnSpatialTfGridGeneratorBackward)
ML_SUCCEED(cudnnSpatialTfSamplerForward)
ML_SUCCEED(cudnnSpatialTfSamplerBackward)
ML_SUCCEED(cudnnCTCLoss)
ML_SUCCEED(cudnnCTCLoss_v8)
