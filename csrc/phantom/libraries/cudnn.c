/* cuDNN's backend API, by which torch runs convolutions, and its handles.
 *
 * A descriptor keeps its attributes.  The heuristics offer one engine for a graph of
 * operations, with the workspace of its convolutions (workspace.h). */
#include "phantom.h"

#include <stdlib.h>
#include <string.h>

#include "libraries/workspace.h"

/* usage.c has the measurement. */
#define HANDLE_BYTES (9 * ML_MIB)
#define INTERNAL_ERROR 4000 /* of cudnnStatus_t */

ML_EXPORT(int, cudnnCreate, (void **handle))
{
    *handle = ml_library_new(HANDLE_BYTES);
    return *handle != NULL ? 0 : INTERNAL_ERROR;
}

ML_EXPORT(int, cudnnDestroy, (void *handle))
{
    ml_library_free(handle);
    return 0;
}

ML_EXPORT(int, cudnnGetStream, (void *handle, void **stream))
{
    (void)handle;
    *stream = NULL;
    return 0;
}

ML_EXPORT(size_t, cudnnGetVersion, (void))
{
    return ml_phantom_cudnn_version();
}

ML_EXPORT(size_t, cudnnGetCudartVersion, (void))
{
    return (size_t)ml_phantom_cuda_version();
}

/* libraryPropertyType: major, minor and patch are 0, 1 and 2. */
ML_EXPORT(int, cudnnGetProperty, (int property, int *value))
{
    int version = (int)ml_phantom_cudnn_version();

    *value = property == 0   ? version / 10000
             : property == 1 ? version / 100 % 100
                             : version % 100;
    return 0;
}

ML_EXPORT(const char *, cudnnGetErrorString, (int status))
{
    return status == 0 ? "CUDNN_STATUS_SUCCESS" : "a cuDNN error of the phantom device";
}

ML_EXPORT(void, cudnnGetLastErrorString, (char *text, size_t size))
{
    if (size > 0) {
        text[0] = '\0';
    }
}

ML_SUCCEED(cudnnSetStream)

/* --- Descriptors ----------------------------------------------------------------------- */

/* cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, cudnnStatus_t. */
enum {
    ENGINEHEUR_OPERATION_GRAPH = 201,
    ENGINEHEUR_RESULTS = 202,
    ENGINECFG_ENGINE = 300,
    ENGINECFG_WORKSPACE_SIZE = 303,
    EXECUTION_PLAN_ENGINE_CONFIG = 401,
    EXECUTION_PLAN_WORKSPACE_SIZE = 402,
    OPERATIONGRAPH_OPS = 801,
    OPERATIONGRAPH_ENGINE_GLOBAL_COUNT = 802,
    TENSOR_DATA_TYPE = 901,
    TENSOR_DIMENSIONS = 902,
    TENSOR_STRIDES = 903,
    CONVOLUTION_FILTER_STRIDES = 103,
    CONVOLUTION_FORWARD_DESCRIPTOR = 702,
    CONVOLUTION_FORWARD_W = 703,
    CONVOLUTION_FORWARD_X = 704,
    CONVOLUTION_FORWARD_Y = 705,
    CONVOLUTION_BWD_DATA_DESCRIPTOR = 708,
    CONVOLUTION_BWD_DATA_W = 709,
    CONVOLUTION_BWD_DATA_DX = 710,
    CONVOLUTION_BWD_DATA_DY = 711,
    CONVOLUTION_BWD_FILTER_DESCRIPTOR = 714,
    CONVOLUTION_BWD_FILTER_DW = 715,
    CONVOLUTION_BWD_FILTER_X = 716,
    CONVOLUTION_BWD_FILTER_DY = 717,
    ENGINE_OPERATION_GRAPH = 1300,
    REDUCTION_X = 1610,
    REDUCTION_Y = 1611,

    TYPE_INT64 = 3,
    TYPE_BACKEND_DESCRIPTOR = 15,
    TYPE_INT32 = 23,
    TYPE_CHAR = 24,

    STATUS_BAD_PARAM = 2000,
};

/* cudnnBackendDescriptorType_t. */
enum {
    OPERATION_CONVOLUTION_FORWARD = 10,
    OPERATION_CONVOLUTION_BACKWARD_FILTER = 11,
    OPERATION_CONVOLUTION_BACKWARD_DATA = 12,
    OPERATION_MATMUL = 19,
    OPERATION_REDUCTION = 22,
    OPERATION_SDPA_FORWARD = 41,
    OPERATION_SDPA_BACKWARD = 43,
};

typedef struct attribute {
    int name;
    int type;
    int64_t count; /* elements */
    size_t bytes;
    struct attribute *next;
    unsigned char data[];
} attribute;

/* Reference-counted: callers destroy a graph while a plan uses it. */
typedef struct descriptor {
    int kind;
    int references;
    attribute *attributes;
} descriptor;

static descriptor *descriptor_release(descriptor *released);

static size_t
element_bytes(int type)
{
    switch (type) {
    case 0:  /* handle */
    case 3:  /* int64 */
    case 5:  /* double */
    case 6:  /* pointer */
    case 15: /* descriptor */
    case 26: /* fraction: two int64, read as a pair */
        return type == 26 ? 16 : 8;
    case 2:  /* boolean */
    case 24: /* char */
        return 1;
    default: /* enumerations, float and int32 */
        return 4;
    }
}

static attribute *
descriptor_find(const descriptor *searched, int name)
{
    for (attribute *each = searched->attributes; each; each = each->next) {
        if (each->name == name) {
            return each;
        }
    }
    return NULL;
}

static void
attribute_free(attribute *freed)
{
    if (freed->type == TYPE_BACKEND_DESCRIPTOR) {
        descriptor **held = (descriptor **)(void *)freed->data;

        for (int64_t i = 0; i < freed->count; i++) {
            descriptor_release(held[i]);
        }
    }
    free(freed);
}

static descriptor *
descriptor_release(descriptor *released)
{
    if (released != NULL && --released->references == 0) {
        while (released->attributes != NULL) {
            attribute *next = released->attributes->next;

            attribute_free(released->attributes);
            released->attributes = next;
        }
        free(released);
    }
    return NULL;
}

static int
descriptor_set(descriptor *set, int name, int type, int64_t count, const void *data)
{
    size_t bytes = (size_t)count * element_bytes(type);
    attribute *made = malloc(sizeof *made + bytes);

    if (made == NULL) {
        return STATUS_BAD_PARAM;
    }
    for (attribute **link = &set->attributes; *link; link = &(*link)->next) {
        if ((*link)->name == name) {
            attribute *old = *link;

            *link = old->next;
            attribute_free(old);
            break;
        }
    }
    *made = (attribute){name, type, count, bytes, set->attributes};
    if (bytes > 0) {
        memcpy(made->data, data, bytes);
    }
    if (type == TYPE_BACKEND_DESCRIPTOR) {
        descriptor **held = (descriptor **)(void *)made->data;

        for (int64_t i = 0; i < count; i++) {
            if (held[i] != NULL) {
                held[i]->references++;
            }
        }
    }
    set->attributes = made;
    return 0;
}

/* --- Workspaces ------------------------------------------------------------------------ */

#define MAX_DIMENSIONS 8

typedef struct {
    int dimensions; /* 0: none */
    int64_t size[MAX_DIMENSIONS];
    int64_t plane;   /* elements */
    int64_t element; /* bytes */
    bool bfloat;
    bool channels_last;
} tensor;

static size_t
get_integers(const descriptor *from, int name, int64_t *values)
{
    const attribute *kept = descriptor_find(from, name);

    if (kept == NULL || kept->type != TYPE_INT64 || kept->count > MAX_DIMENSIONS) {
        return 0;
    }
    memcpy(values, kept->data, kept->bytes);
    return (size_t)kept->count;
}

/* cudnnDataType_t. */
enum {
    DATA_BFLOAT16 = 9
};

static int
get_data_type(const descriptor *of)
{
    const attribute *kept = descriptor_find(of, TENSOR_DATA_TYPE);
    int32_t type = 0;

    if (kept != NULL && kept->bytes >= sizeof type) {
        memcpy(&type, kept->data, sizeof type);
    }
    return type;
}

static int64_t
data_type_bytes(int type)
{
    switch (type) {
    case 1: /* double */
        return 8;
    case 2: /* half */
    case DATA_BFLOAT16:
        return 2;
    case 3: /* the 8-bit types */
    case 6:
    case 12:
    case 13:
        return 1;
    default:
        return 4;
    }
}

/* The descriptor in attribute `name` of an operation, or NULL. */
static const descriptor *
get_reference(const descriptor *operation, int name)
{
    const attribute *kept = descriptor_find(operation, name);
    descriptor *reached = NULL;

    if (kept != NULL && kept->type == TYPE_BACKEND_DESCRIPTOR && kept->count == 1) {
        memcpy(&reached, kept->data, sizeof reached);
    }
    return reached;
}

static tensor
get_tensor(const descriptor *operation, int name)
{
    const descriptor *from = get_reference(operation, name);
    int64_t stride[MAX_DIMENSIONS] = {0};
    tensor read = {.plane = 1};

    if (from == NULL) {
        return read;
    }
    int type = get_data_type(from);
    read.dimensions = (int)get_integers(from, TENSOR_DIMENSIONS, read.size);
    read.element = data_type_bytes(type);
    read.bfloat = type == DATA_BFLOAT16;
    get_integers(from, TENSOR_STRIDES, stride);
    for (int i = 2; i < read.dimensions; i++) {
        read.plane *= read.size[i];
    }
    read.channels_last = read.dimensions > 2 && read.size[1] > 1 && stride[1] == 1;
    return read;
}

/* An operation, by its direction's attributes: the convolution, x, w and y. */
static int64_t
convolution_bytes(const descriptor *operation, int direction, const int names[4])
{
    const descriptor *convolution = get_reference(operation, names[0]);
    tensor x = get_tensor(operation, names[1]);
    tensor w = get_tensor(operation, names[2]);
    tensor y = get_tensor(operation, names[3]);
    int64_t stride[MAX_DIMENSIONS] = {0};

    if (x.dimensions < 3 || w.dimensions != x.dimensions ||
        y.dimensions != x.dimensions || x.size[1] == 0 || x.plane == 0) {
        return 0;
    }
    size_t strides =
        convolution ? get_integers(convolution, CONVOLUTION_FILTER_STRIDES, stride) : 0;
    /* torch represents one dimension as two, the first of size 1. */
    bool flat = x.dimensions == 4 && x.size[2] == 1 && w.size[2] == 1 && x.size[3] > 1;
    ml_convolution of = {
        .direction = direction,
        .dimensions = flat ? 1 : x.dimensions - 2,
        .batch = x.size[0],
        .inputs = x.size[1],
        .outputs = y.size[1],
        .filter_inputs = w.size[1],
        .taps = w.plane,
        .plane = x.plane,
        .made = y.plane,
        .stride = strides > 0 ? stride[strides - 1] : 1,
        .element = x.element,
        .bfloat = x.bfloat,
        .channels_last = x.channels_last || y.channels_last,
    };
    return ml_convolution_workspace(&of);
}

/* Attention with fewer heads of keys and values than of queries: its backward pass makes
 * the gradients of keys and values for each head of queries, in the workspace, and sums
 * them.  Equal to the byte to an H200's, cuDNN 9.19. */
static int64_t
summed_heads_bytes(const descriptor *reduction)
{
    tensor x = get_tensor(reduction, REDUCTION_X);
    tensor y = get_tensor(reduction, REDUCTION_Y);

    if (x.dimensions < 3 || y.dimensions != x.dimensions || x.size[1] == y.size[1]) {
        return 0;
    }
    return x.element * x.size[0] * x.size[1] * x.plane;
}

static int64_t
workspace_bytes(const descriptor *graph)
{
    static const int forward[] = {CONVOLUTION_FORWARD_DESCRIPTOR, CONVOLUTION_FORWARD_X,
                                  CONVOLUTION_FORWARD_W, CONVOLUTION_FORWARD_Y};
    static const int input_gradient[] = {
        CONVOLUTION_BWD_DATA_DESCRIPTOR, CONVOLUTION_BWD_DATA_DX,
        CONVOLUTION_BWD_DATA_W, CONVOLUTION_BWD_DATA_DY};
    static const int filter_gradient[] = {
        CONVOLUTION_BWD_FILTER_DESCRIPTOR, CONVOLUTION_BWD_FILTER_X,
        CONVOLUTION_BWD_FILTER_DW, CONVOLUTION_BWD_FILTER_DY};
    const attribute *operations = descriptor_find(graph, OPERATIONGRAPH_OPS);
    int64_t bytes = 0;
    bool attention = false;

    if (operations == NULL || operations->type != TYPE_BACKEND_DESCRIPTOR) {
        return 0;
    }
    for (int64_t i = 0; i < operations->count; i++) {
        descriptor *operation;

        memcpy(&operation, operations->data + (size_t)i * sizeof operation,
               sizeof operation);
        switch (operation->kind) {
        case OPERATION_CONVOLUTION_FORWARD:
            bytes += convolution_bytes(operation, ML_FORWARD, forward);
            break;
        case OPERATION_CONVOLUTION_BACKWARD_DATA:
            bytes += convolution_bytes(operation, ML_INPUT_GRADIENT, input_gradient);
            break;
        case OPERATION_CONVOLUTION_BACKWARD_FILTER:
            bytes += convolution_bytes(operation, ML_FILTER_GRADIENT, filter_gradient);
            break;
        case OPERATION_MATMUL:
        case OPERATION_SDPA_FORWARD:
        case OPERATION_SDPA_BACKWARD:
            attention = true;
            break;
        case OPERATION_REDUCTION:
            bytes += summed_heads_bytes(operation);
            break;
        default:
            break;
        }
    }
    /* Attention: what torch's front end does not compute itself. */
    return attention ? bytes + 256 : bytes;
}

/* The graph of operations behind a heuristic, an engine, its configuration or a
 * plan. */
static const descriptor *
descriptor_graph(const descriptor *of)
{
    static const int towards[] = {EXECUTION_PLAN_ENGINE_CONFIG, ENGINECFG_ENGINE,
                                  ENGINE_OPERATION_GRAPH, ENGINEHEUR_OPERATION_GRAPH};

    for (size_t i = 0; i < sizeof towards / sizeof towards[0]; i++) {
        const attribute *next = descriptor_find(of, towards[i]);

        if (next != NULL && next->count > 0) {
            descriptor *reached;

            memcpy(&reached, next->data, sizeof reached);
            return reached ? descriptor_graph(reached) : of;
        }
    }
    return of;
}

/* --- The API ------------------------------------------------------------------------------ */

ML_EXPORT(int, cudnnBackendCreateDescriptor, (int kind, descriptor **made))
{
    *made = calloc(1, sizeof **made);
    if (*made == NULL) {
        return STATUS_BAD_PARAM;
    }
    (*made)->kind = kind;
    (*made)->references = 1;
    return 0;
}

ML_EXPORT(int, cudnnBackendDestroyDescriptor, (descriptor * destroyed))
{
    descriptor_release(destroyed);
    return 0;
}

ML_EXPORT(int, cudnnBackendSetAttribute,
          (descriptor * set, int name, int type, int64_t count, const void *data))
{
    return descriptor_set(set, name, type, count, data);
}

ML_SUCCEED(cudnnBackendFinalize)
ML_SUCCEED(cudnnBackendExecute)

/* Fills the caller's descriptors with one that leads back to `from`: an engine's
 * configuration from a heuristic, an engine from a configuration. */
static int
get_descriptor(descriptor *from, int name, int64_t requested, int64_t *count,
               void *data)
{
    const descriptor *graph = descriptor_graph(from);
    descriptor **filled = data;

    if (count != NULL) {
        *count = 1;
    }
    if (requested > 0 && filled != NULL && filled[0] != NULL && graph != from) {
        (void)name;
        return descriptor_set(filled[0], ENGINE_OPERATION_GRAPH,
                              TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    }
    return 0;
}

/* Gives of the `there` elements at `content` as many as were requested. */
static int
give_elements(int64_t requested, int64_t *count, void *data, int64_t there,
              const void *content, size_t bytes)
{
    int64_t copied = requested < there ? requested : there;

    if (count != NULL) {
        *count = there;
    }
    if (data != NULL && copied > 0) {
        memcpy(data, content, (size_t)copied * bytes);
    }
    return 0;
}

static int64_t
number_of(const descriptor *from, int name)
{
    switch (name) {
    case OPERATIONGRAPH_ENGINE_GLOBAL_COUNT:
        return 1;
    case ENGINECFG_WORKSPACE_SIZE:
    case EXECUTION_PLAN_WORKSPACE_SIZE:
        return workspace_bytes(descriptor_graph(from));
    default:
        return 0;
    }
}

ML_EXPORT(int, cudnnBackendGetAttribute,
          (descriptor * from, int name, int type, int64_t requested, int64_t *count,
           void *data))
{
    const attribute *kept = descriptor_find(from, name);

    if (type == TYPE_BACKEND_DESCRIPTOR && name != OPERATIONGRAPH_OPS) {
        if (name == ENGINEHEUR_RESULTS || name == ENGINECFG_ENGINE ||
            name == EXECUTION_PLAN_ENGINE_CONFIG) {
            return get_descriptor(from, name, requested, count, data);
        }
    }
    else if (kept != NULL && kept->type == type) {
        return give_elements(requested, count, data, kept->count, kept->data,
                             element_bytes(type));
    }
    else if (type == TYPE_INT64) {
        const int64_t number = number_of(from, name);

        return give_elements(requested, count, data, 1, &number, sizeof number);
    }
    /* The shared memory that an engine needs. */
    else if (type == TYPE_INT32) {
        const int32_t none = 0;

        return give_elements(requested, count, data, 1, &none, sizeof none);
    }
    /* torch uses a plan's JSON as its key; an empty object suffices.  An engine has no
     * notes on numbers and behaviour. */
    else if (type == TYPE_CHAR) {
        return give_elements(requested, count, data, 3, "{}", 1);
    }
    return give_elements(requested, count, data, 0, NULL, 0);
}
